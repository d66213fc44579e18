// Join tokens as they come from people's clipboards.
#include "lib/base/testing/fuzz.h"
#include "lib/security/join_token.h"

namespace fusionllm::security {
namespace {

// A secret of the bytes 0 to 31 and the certificate of an authority that signs nothing.
constexpr char kToken[] =
    "fj1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8wggGWMIIBPaADAgECAhRAsgnG0yPDKmQDFy5b5hD_yG0BNjAKBggqhkjOPQQDAj"
    "AYMRYwFAYDVQQDDA1mdXNpb25sbG0gam9iMCAXDTI2MTEyMTE1NDkyOVoYDzIxMjYxMDI4MTU0OTI5WjAYMRYwFAYDVQQDDA1mdXNpb25sbG0g"
    "am9iMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7PrYP5SdEf7bGb_Hobf_TfivrBR6LR5BuU7RUd5ruRYS4VBcLmw_rC-stBzqrFpmHnDmBZ"
    "1_pG7g8Zd5Z7fiXaNjMGEwHQYDVR0OBBYEFP58Xqffy-5mnDaNzf7XgL_zv9MEMB8GA1UdIwQYMBaAFP58Xqffy-5mnDaNzf7XgL_zv9MEMA8G"
    "A1UdEwEB_wQFMAMBAf8wDgYDVR0PAQH_BAQDAgIEMAoGCCqGSM49BAMCA0cAMEQCIDGchYNwbkU2vD5n8ALt9dqQ4iIjGZgqNmz08LIluacpAi"
    "BFY1fCw-mgRy2_2wT94BMq_YcwcnnGBJx-MPHaoDIImw";

std::vector<std::string> Seeds() { return {kToken, std::string("\n  ") + kToken + " \n"}; }

std::vector<std::string> Words() { return {"fj1.", "fj2.", "=", "-", "_", "+", "/", " "}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<JoinToken> token = ParseJoinToken(input);
  if (!token.ok()) {
    FUZZ_CHECK(!token.status().message().empty());
    return false;
  }
  const absl::StatusOr<std::string> text = MakeJoinToken(token->secret, token->ca_pem);
  FUZZ_CHECK(text.ok());
  const absl::StatusOr<JoinToken> again = ParseJoinToken(*text);
  FUZZ_CHECK(again.ok() && again->secret == token->secret && again->ca_pem == token->ca_pem);
  return true;
}

}  // namespace
}  // namespace fusionllm::security

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {security::Seeds, security::Words, security::Accepts}; }
