#include "lib/kube/api/api_error.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/json_text.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

constexpr char kPayload[] = "fusionllm.io/kubernetes-api-error";
// Longer than this a server may not make us wait: a hostile one would stop us for good.
constexpr absl::Duration kLongestRetryAfter = absl::Minutes(5);

struct CodeSense {
  int code;
  const char* reason;  // metav1.StatusReason
  absl::StatusCode sense;
};

constexpr CodeSense kCodes[] = {
    {400, "BadRequest", absl::StatusCode::kInvalidArgument},
    {401, "Unauthorized", absl::StatusCode::kUnauthenticated},
    {403, "Forbidden", absl::StatusCode::kPermissionDenied},
    {404, "NotFound", absl::StatusCode::kNotFound},
    {405, "MethodNotAllowed", absl::StatusCode::kFailedPrecondition},
    {406, "NotAcceptable", absl::StatusCode::kFailedPrecondition},
    {408, "Timeout", absl::StatusCode::kDeadlineExceeded},
    {409, "Conflict", absl::StatusCode::kAborted},
    {410, "Expired", absl::StatusCode::kOutOfRange},
    {413, "RequestEntityTooLarge", absl::StatusCode::kResourceExhausted},
    {415, "UnsupportedMediaType", absl::StatusCode::kFailedPrecondition},
    {422, "Invalid", absl::StatusCode::kInvalidArgument},
    {429, "TooManyRequests", absl::StatusCode::kResourceExhausted},
    {500, "InternalError", absl::StatusCode::kInternal},
    {502, "ServiceUnavailable", absl::StatusCode::kUnavailable},
    {503, "ServiceUnavailable", absl::StatusCode::kUnavailable},
    {504, "Timeout", absl::StatusCode::kDeadlineExceeded},
};

const CodeSense* Find(int code) {
  const auto* const found = std::find_if(std::begin(kCodes), std::end(kCodes), [code](const CodeSense& c) { return c.code == code; });
  return found == std::end(kCodes) ? nullptr : found;
}

// The field as text, cut; empty if it is missing or something else.
std::string Text(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) return "";
  return found->get_ref<const std::string&>().substr(0, kMaxErrorMessageBytes);
}

std::optional<int> Int(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  if (!(value >= 0 && value <= 1e9)) return std::nullopt;
  return static_cast<int>(value);
}

absl::Duration Limited(absl::Duration wait) { return std::clamp(wait, absl::ZeroDuration(), kLongestRetryAfter); }

void ReadDetails(const json& details, ApiError& error) {
  const std::optional<int> seconds = Int(details, "retryAfterSeconds");
  if (seconds.has_value() && *seconds > 0) error.retry_after = Limited(absl::Seconds(*seconds));
  const auto causes = details.find("causes");
  if (causes == details.end() || !causes->is_array()) return;
  for (const json& cause : *causes) {
    if (error.causes.size() == kMaxErrorCauses) break;
    if (cause.is_object()) error.causes.push_back({Text(cause, "reason"), Text(cause, "field"), Text(cause, "message")});
  }
}

// A page of a proxy, or nothing at all: one line of it.
std::string MessageOf(int code, absl::string_view body) {
  std::string text(body.substr(0, 512));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  absl::StripAsciiWhitespace(&text);
  if (text.empty()) return absl::StrCat("the server answered ", code, " without a reason");
  return absl::StrCat("the server answered ", code, ": ", text);
}

absl::StatusCode Sense(const ApiError& error) {
  if (error.code == 409 && error.reason == "AlreadyExists") return absl::StatusCode::kAlreadyExists;
  if (error.reason == "ServerTimeout") return absl::StatusCode::kUnavailable;
  if (const CodeSense* const known = Find(error.code)) return known->sense;
  if (error.code >= 500) return absl::StatusCode::kInternal;
  if (error.code >= 400) return absl::StatusCode::kInvalidArgument;
  return absl::StatusCode::kUnknown;
}

json ToJson(const ApiError& error) {
  json causes = json::array();
  for (const ErrorCause& cause : error.causes) {
    causes.push_back({{"reason", cause.reason}, {"field", cause.field}, {"message", cause.message}});
  }
  json out = {{"code", error.code},          {"reason", error.reason},           {"message", error.message},
              {"causes", std::move(causes)}, {"continue", error.continue_token}, {"auditID", error.audit_id}};
  if (error.retry_after.has_value()) out["retryAfterNanoseconds"] = absl::ToInt64Nanoseconds(*error.retry_after);
  return out;
}

bool HasCause(const ApiError& error, absl::string_view reason) {
  return std::any_of(error.causes.begin(), error.causes.end(), [reason](const ErrorCause& cause) { return cause.reason == reason; });
}

template <class Predicate>
bool Holds(const absl::Status& status, const Predicate& predicate) {
  const std::optional<ApiError> error = ApiErrorOf(status);
  return error.has_value() && predicate(*error);
}

}  // namespace

ApiError ParseApiError(int http_code, absl::string_view body) {
  ApiError error;
  const json status = base::ParseJson(body);
  if (status.is_object() && Text(status, "kind") == "Status") {
    error.code = Int(status, "code").value_or(0);
    error.reason = Text(status, "reason");
    error.message = Text(status, "message");
    if (const auto details = status.find("details"); details != status.end() && details->is_object()) ReadDetails(*details, error);
    if (const auto meta = status.find("metadata"); meta != status.end() && meta->is_object()) {
      error.continue_token = Text(*meta, "continue");
    }
  }
  if (error.code == 0) error.code = http_code;
  const CodeSense* const known = Find(error.code);
  if (error.reason.empty()) error.reason = known != nullptr ? known->reason : "Unknown";
  if (error.message.empty()) error.message = MessageOf(error.code, status.is_object() ? absl::string_view() : body);
  return error;
}

absl::Status ToStatus(const ApiError& error) {
  absl::Status status(Sense(error), absl::StrCat(error.message, " (", error.code, " ", error.reason, ")"));
  status.SetPayload(kPayload, absl::Cord(ToJson(error).dump(-1, ' ', false, json::error_handler_t::replace)));
  return status;
}

std::optional<ApiError> ApiErrorOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const json object = base::ParseJson(std::string(*payload));
  if (!object.is_object()) return std::nullopt;
  ApiError error;
  error.code = Int(object, "code").value_or(0);
  error.reason = Text(object, "reason");
  error.message = Text(object, "message");
  ReadDetails(object, error);
  error.continue_token = Text(object, "continue");
  error.audit_id = Text(object, "auditID");
  if (const auto wait = object.find("retryAfterNanoseconds"); wait != object.end() && wait->is_number_integer()) {
    error.retry_after = Limited(absl::Nanoseconds(wait->get<int64_t>()));
  }
  return error;
}

bool IsApiNotFound(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 404; });
}

bool IsApiAlreadyExists(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 409 && error.reason == "AlreadyExists"; });
}

bool IsApiConflict(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 409 && error.reason != "AlreadyExists"; });
}

bool IsApiExpired(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 410; });
}

bool IsApiResourceVersionTooLarge(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) {
    return HasCause(error, "ResourceVersionTooLarge") || absl::StrContains(error.message, "Too large resource version");
  });
}

bool IsApiInvalid(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 422 || error.code == 400; });
}

bool IsApiForbidden(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 403; });
}

bool IsApiUnauthorized(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 401; });
}

bool IsApiThrottled(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 429; });
}

bool IsApiNamespaceTerminating(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return HasCause(error, "NamespaceTerminating"); });
}

bool IsApiQuotaExceeded(const absl::Status& status) {
  return Holds(status, [](const ApiError& error) { return error.code == 403 && absl::StrContains(error.message, "exceeded quota"); });
}

bool IsTransient(const absl::Status& status) {
  if (const std::optional<ApiError> error = ApiErrorOf(status)) {
    return error->code == 408 || error->code == 429 || (error->code >= 500 && error->code != 501);
  }
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const std::optional<ApiError> error = ApiErrorOf(status);
  return error.has_value() ? error->retry_after : std::nullopt;
}

}  // namespace fusionllm::kube
