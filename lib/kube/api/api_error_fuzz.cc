// Refusals as a hostile or broken server may word them.
#include "lib/base/testing/fuzz.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"kind":"Status","apiVersion":"v1","metadata":{"continue":"abc"},"status":"Failure","message":"no","reason":"Invalid","code":422,
"details":{"name":"a","retryAfterSeconds":7,"causes":[{"reason":"FieldValueInvalid","field":"spec.x","message":"must be >= 1"}]}})",
      R"({"kind":"Status","code":410,"reason":"Expired"})"};
}

std::vector<std::string> Words() {
  return {"\"kind\":\"Status\"",
          "\"code\":",
          "\"causes\":[",
          "\"details\":{",
          "null",
          "1e999",
          "-1",
          "99999999999999999999",
          "{",
          "[",
          "\\ud800"};
}

bool Accepts(absl::string_view input) {
  const ApiError error = ParseApiError(500, input);
  FUZZ_CHECK(!error.message.empty() && error.message.size() <= kMaxErrorMessageBytes);
  FUZZ_CHECK(error.causes.size() <= kMaxErrorCauses);
  FUZZ_CHECK(!error.retry_after.has_value() || (*error.retry_after >= absl::ZeroDuration() && *error.retry_after <= absl::Minutes(5)));
  const absl::Status status = ToStatus(error);
  FUZZ_CHECK(!status.ok());
  const std::optional<ApiError> carried = ApiErrorOf(status);
  FUZZ_CHECK(carried.has_value() && carried->code == error.code && carried->causes.size() == error.causes.size());
  IsTransient(status);
  return error.reason != "InternalError";
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
