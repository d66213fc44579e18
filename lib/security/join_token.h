// A join token: one line of text by which a device outside the job's machines finds trust and is trusted.
//
//   fj1.<base64url, without padding, of: 32 bytes secret, then the CA's certificate in DER>
//
// The certificate lets the device know the job's broker before it sends anything; the secret lets the broker know the device. Who has
// the text may join until the run ends, so it belongs into no log. Tokens come from people's clipboards: ParseJoinToken accepts any bytes.
// All functions are thread-safe and do not block.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

inline constexpr size_t kJoinSecretBytes = 32;
inline constexpr size_t kMaxJoinTokenBytes = 16 << 10;

using JoinSecret = std::array<uint8_t, kJoinSecretBytes>;

struct JoinToken {
  JoinSecret secret{};
  std::string ca_pem;
};

// 256 bits from the system's generator. Unavailable when it has none to give.
absl::StatusOr<JoinSecret> MakeJoinSecret();

// InvalidArgument: ca_pem does not hold one certificate of a CA, or the token would exceed kMaxJoinTokenBytes.
absl::StatusOr<std::string> MakeJoinToken(const JoinSecret& secret, absl::string_view ca_pem);

// White space around the token is ignored. InvalidArgument says what is wrong (another version, a stray character and where, cut short,
// something after its end, a damaged certificate) and never repeats the token.
absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text);

// In a time that does not depend on where the secrets differ.
bool SameSecret(const JoinSecret& a, const JoinSecret& b);

}  // namespace fusionllm::security
