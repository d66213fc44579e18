// Tokens of service accounts as an API server makes them, but for the signature, which is not checked. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

struct FakeTokenClaims {
  ObjectKey account;
  std::string secret = {}, secret_uid = {};  // to which it is bound; empty: to none
  absl::Time issued_at;
  std::optional<absl::Time> expires_at = {};  // nothing: never, as that of a Secret of an account
};

std::string FakeToken(const FakeTokenClaims& claims);

}  // namespace fusionllm::kube::testing
