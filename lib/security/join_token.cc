#include "lib/security/join_token.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/security/openssl_handles.h"

namespace fusionllm::security {

absl::StatusOr<std::string> MakeJoinToken() {
  std::string secret(32, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size())) != 1)
    return OpenSslError("draw a join token");
  return absl::StrCat("fllm-", absl::BytesToHexString(secret));
}

bool SameToken(absl::string_view presented, absl::string_view expected) {
  if (expected.empty() || presented.size() != expected.size()) return false;
  return CRYPTO_memcmp(presented.data(), expected.data(), expected.size()) == 0;
}

}  // namespace fusionllm::security
