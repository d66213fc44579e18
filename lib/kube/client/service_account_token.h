// Tokens of service accounts that end, and end with a Secret to which they are bound: how one is asked for, and what it says of itself.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::kube {

// The least that API servers grant.
inline constexpr absl::Duration kMinTokenLifetime = absl::Minutes(10);
inline constexpr size_t kMaxAccountTokenBytes = size_t{16} << 10;

struct ServiceAccountToken {
  ObjectKey account;
  std::string secret, secret_uid;  // of the account's namespace, to which it is bound; empty: to none
  absl::Time issued_at;
  std::optional<absl::Time> expires_at;  // nothing: it never does
  bool operator==(const ServiceAccountToken&) const = default;
};

// What a token says of itself: nothing is verified, which is for the server that takes it. Pure. InvalidArgument, without a word of the
// token, for what is no token of a service account, or would be more than one header of HTTP.
absl::StatusOr<ServiceAccountToken> ReadServiceAccountToken(absl::string_view token);

// A new token for `of.account`, for `lifetime` or as long as the server grants, bound to the Secret that `of` names: once that is gone the
// token is worth nothing. Blocks. Errors: the server's; Internal for an answer that holds no such token.
absl::StatusOr<std::string> RequestToken(ApiClient& api, const ServiceAccountToken& of, absl::Duration lifetime,
                                         const CallOptions& call = {});

}  // namespace fusionllm::kube
