// What an API server says when it refuses: the fields of metav1.Status that decide what to do next, carried inside an absl::Status.
//
// Two refusals may share an HTTP code and ask for different things (409: the name is taken, or the object has changed meanwhile), so
// callers ask the predicates below instead of the absl code. The absl codes are those of the nearest sense: NotFound, AlreadyExists,
// Aborted (conflict), OutOfRange (an expired resource version), InvalidArgument, PermissionDenied, Unauthenticated, ResourceExhausted
// (throttled, too large), FailedPrecondition (method not allowed, unsupported media type), Unavailable, DeadlineExceeded, Internal.
// Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fusionllm::kube {

struct ErrorCause {
  std::string reason;  // "FieldValueInvalid", "NamespaceTerminating"
  std::string field;   // "spec.replicas"; may be empty
  std::string message;
  bool operator==(const ErrorCause&) const = default;
};

struct ApiError {
  int code = 0;        // of HTTP
  std::string reason;  // "AlreadyExists"; made from the code where the server gives none
  std::string message;
  std::vector<ErrorCause> causes;  // at most kMaxErrorCauses
  std::optional<absl::Duration> retry_after;
  std::string continue_token;  // with an expired one in a list: a newer one from which an inconsistent list could go on
  std::string audit_id;
  bool operator==(const ApiError&) const = default;
};

inline constexpr size_t kMaxErrorCauses = 32;
inline constexpr size_t kMaxErrorMessageBytes = 4096;

// From the body of an answer, or of an ERROR event of a watch: metav1.Status as JSON. A body of another kind (a proxy's page, garbage)
// becomes the message, cut. `http_code` counts where the body has no code of its own.
ApiError ParseApiError(int http_code, absl::string_view body);

absl::Status ToStatus(const ApiError& error);
// Nothing for OK and for errors that no API server has sent.
std::optional<ApiError> ApiErrorOf(const absl::Status& status);

bool IsApiNotFound(const absl::Status& status);
bool IsApiAlreadyExists(const absl::Status& status);            // the name is taken
bool IsApiConflict(const absl::Status& status);                 // changed meanwhile, or a precondition or a field owned by another manager
bool IsApiExpired(const absl::Status& status);                  // 410: the resource version or continue token is too old
bool IsApiResourceVersionTooLarge(const absl::Status& status);  // this server has not seen that resource version yet
bool IsApiInvalid(const absl::Status& status);                  // 422, or 400: asking again will not help
bool IsApiForbidden(const absl::Status& status);
bool IsApiUnauthorized(const absl::Status& status);
bool IsApiThrottled(const absl::Status& status);  // 429
bool IsApiNamespaceTerminating(const absl::Status& status);
bool IsApiQuotaExceeded(const absl::Status& status);
// Whether the same request may succeed later without anybody changing anything: no connection, deadlines, 429, 5xx.
bool IsTransient(const absl::Status& status);
// What the server asks to wait; nothing if it does not say.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace fusionllm::kube
