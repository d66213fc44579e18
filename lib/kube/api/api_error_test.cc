#include "lib/kube/api/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;

absl::Status Refusal(int http_code, absl::string_view body) { return ToStatus(ParseApiError(http_code, body)); }

std::string StatusJson(int code, absl::string_view reason, absl::string_view rest = "") {
  return absl::StrCat(R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":")", reason, R"(","code":)", code,
                      rest, "}");
}

TEST(ApiError, DistinguishesConflictFromAlreadyExists) {
  const absl::Status taken = Refusal(409, StatusJson(409, "AlreadyExists"));
  EXPECT_TRUE(IsApiAlreadyExists(taken));
  EXPECT_FALSE(IsApiConflict(taken));
  EXPECT_TRUE(absl::IsAlreadyExists(taken));
  const absl::Status changed = Refusal(409, StatusJson(409, "Conflict"));
  EXPECT_TRUE(IsApiConflict(changed));
  EXPECT_FALSE(IsApiAlreadyExists(changed));
  EXPECT_TRUE(absl::IsAborted(changed));
}

TEST(ApiError, AnErrorEventOf410CountsByItsOwnCode) {
  // In a watch the HTTP code is 200 and the refusal comes as an event.
  EXPECT_TRUE(IsApiExpired(Refusal(200, StatusJson(410, "Expired"))));
  EXPECT_TRUE(IsApiExpired(Refusal(200, StatusJson(410, "Gone"))));
  EXPECT_TRUE(IsApiExpired(Refusal(410, "")));
  EXPECT_FALSE(IsApiExpired(Refusal(404, StatusJson(404, "NotFound"))));
}

TEST(ApiError, EveryFieldSurvivesTheStatus) {
  ApiError error = ParseApiError(422, R"({"kind":"Status","code":422,"reason":"Invalid","message":"FusionJob \"a\" is invalid",
    "metadata":{"continue":"abc"},
    "details":{"name":"a","retryAfterSeconds":7,"causes":[{"reason":"FieldValueInvalid","field":"spec.executors.min","message":"must be >= 1"}]}})");
  error.audit_id = "4f3c";
  EXPECT_EQ(error.code, 422);
  EXPECT_EQ(error.reason, "Invalid");
  ASSERT_EQ(error.causes.size(), 1u);
  EXPECT_EQ(error.causes[0].field, "spec.executors.min");
  EXPECT_EQ(error.retry_after, absl::Seconds(7));
  EXPECT_EQ(error.continue_token, "abc");
  const absl::Status status = ToStatus(error);
  EXPECT_EQ(ApiErrorOf(status), error);
  EXPECT_THAT(std::string(status.message()), HasSubstr("FusionJob \"a\" is invalid (422 Invalid)"));
  EXPECT_TRUE(IsApiInvalid(status));
  EXPECT_EQ(RetryAfter(status), absl::Seconds(7));
}

TEST(ApiError, WhatIsNoStatusBecomesTheMessage) {
  const absl::Status page = Refusal(502, "<html>\r\n<b>Bad Gateway</b></html>");
  EXPECT_THAT(std::string(page.message()), HasSubstr("<b>Bad Gateway</b>"));
  EXPECT_EQ(std::string(page.message()).find('\n'), std::string::npos);
  EXPECT_TRUE(IsTransient(page));
  EXPECT_THAT(std::string(Refusal(503, "").message()), HasSubstr("503 without a reason"));
  const ApiError odd = ParseApiError(500, R"({"kind":"Status","code":"many","details":[1],"metadata":3,"message":null})");
  EXPECT_EQ(odd.code, 500);
  EXPECT_EQ(odd.reason, "InternalError");
  // A page that is no UTF-8 must not break the carrying of it.
  EXPECT_TRUE(ApiErrorOf(Refusal(500, "\xff\xfe oops")).has_value());
}

TEST(ApiError, NothingThatAServerSendsGrowsWithoutBound) {
  std::string causes = "{}";
  for (int i = 0; i < 1000; ++i) causes += R"(,{"reason":"r"})";
  const ApiError error =
      ParseApiError(422, StatusJson(422, "Invalid", absl::StrCat(R"(,"details":{"retryAfterSeconds":100000000,"causes":[)", causes, "]}")));
  EXPECT_EQ(error.causes.size(), kMaxErrorCauses);
  EXPECT_EQ(error.retry_after, absl::Minutes(5));
  EXPECT_LE(ParseApiError(500, absl::StrCat(R"({"kind":"Status","message":")", std::string(1 << 20, 'x'), "\"}")).message.size(),
            kMaxErrorMessageBytes);
}

TEST(ApiError, TransientIsWhatMaySucceedLater) {
  EXPECT_TRUE(IsTransient(Refusal(429, StatusJson(429, "TooManyRequests"))));
  EXPECT_TRUE(IsTransient(Refusal(500, StatusJson(500, "ServerTimeout"))));
  EXPECT_TRUE(IsTransient(Refusal(504, StatusJson(504, "Timeout"))));
  EXPECT_TRUE(IsTransient(absl::UnavailableError("connection refused")));
  EXPECT_TRUE(IsTransient(absl::DeadlineExceededError("60 s are over")));
  EXPECT_FALSE(IsTransient(Refusal(422, StatusJson(422, "Invalid"))));
  EXPECT_FALSE(IsTransient(Refusal(501, "")));
  EXPECT_FALSE(IsTransient(absl::FailedPreconditionError("the certificate is not trusted")));
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

TEST(ApiError, DistinguishesReasonsOf403) {
  const absl::Status terminating = Refusal(
      403, StatusJson(403, "Forbidden", R"(,"details":{"causes":[{"reason":"NamespaceTerminating","field":"metadata.namespace"}]})"));
  EXPECT_TRUE(IsApiNamespaceTerminating(terminating));
  EXPECT_FALSE(IsApiQuotaExceeded(terminating));
  EXPECT_TRUE(IsApiForbidden(terminating));
  const absl::Status quota = Refusal(
      403,
      R"({"kind":"Status","code":403,"reason":"Forbidden","message":"pods \"a\" is forbidden: exceeded quota: q, requested: pods=1"})");
  EXPECT_TRUE(IsApiQuotaExceeded(quota));
  EXPECT_FALSE(IsApiNamespaceTerminating(quota));
}

TEST(ApiError, TheResourceVersionIsNotYetKnown) {
  EXPECT_TRUE(IsApiResourceVersionTooLarge(
      Refusal(504, StatusJson(504, "Timeout", R"(,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]})"))));
  EXPECT_FALSE(IsApiResourceVersionTooLarge(Refusal(504, StatusJson(504, "Timeout"))));
}

TEST(ApiError, OtherErrorsCarryNone) {
  EXPECT_FALSE(ApiErrorOf(absl::NotFoundError("a file")).has_value());
  EXPECT_FALSE(IsApiNotFound(absl::NotFoundError("a file")));
  EXPECT_FALSE(ApiErrorOf(absl::OkStatus()).has_value());
}

}  // namespace
}  // namespace fusionllm::kube
