// Random damage to what comes from outside, by seed: a reader may refuse it or read what was meant, nothing else.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"
#include "lib/security/join_token.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

constexpr uint64_t kMutants = 2000;

std::string Mutate(std::string text, uint64_t seed) {
  const base::CounterRng rng(seed, "mutant");
  uint64_t draw = 0;
  const uint64_t edits = 1 + rng.Below(draw++, 3);
  for (uint64_t edit = 0; edit < edits && !text.empty(); ++edit) {
    const size_t at = rng.Below(draw++, text.size());
    const size_t length = 1 + rng.Below(draw++, 20);
    switch (rng.Below(draw++, 6)) {
      case 0:
        text[at] = static_cast<char>(rng.Below(draw++, 256));
        break;
      case 1:
        text[at] = "ABCDwxyz0189-_+/=\n"[rng.Below(draw++, 18)];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(rng.Below(draw++, text.size()), length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.insert(at, 1, "\n \0-"[rng.Below(draw++, 4)]);
        break;
    }
  }
  return text;
}

std::string Canonical(const std::string& pem) {
  const absl::StatusOr<std::vector<CertificatePtr>> certificates = ParseCertificates(pem, "mutant");
  return certificates.ok() ? *CertificateToPem(*certificates->front()) : std::string(certificates.status().message());
}

TEST(MutationTest, AMutantOfATokenIsRefusedOrKeepsTheAuthority) {
  const CertificateAuthority authority = *CertificateAuthority::Create();
  const std::string token = *MakeJoinToken(*MakeJoinSecret(), authority.certificate_pem());
  uint64_t refused = 0;
  for (uint64_t seed = 0; seed < kMutants; ++seed) {
    const absl::StatusOr<JoinToken> parsed = ParseJoinToken(Mutate(token, seed));
    if (!parsed.ok()) {
      ++refused;
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << "seed " << seed << ": " << parsed.status();
    } else {
      EXPECT_EQ(parsed->ca_pem, authority.certificate_pem()) << "seed " << seed;
    }
  }
  EXPECT_GT(refused, kMutants / 2) << "the mutations are too tame to test anything";
  EXPECT_LT(refused, kMutants) << "the mutations are too wild to test anything";
}

TEST(MutationTest, AMutantOfACredentialIsRefusedOrMeansTheSame) {
  const CertificateAuthority authority = *CertificateAuthority::Create();
  const IssuedCertificate issued = *authority.Issue("paris-0");
  const PemCredentials good{authority.certificate_pem(), issued.certificate_pem, issued.private_key_pem};
  const absl::Time now = absl::Now();
  ASSERT_TRUE(CheckCredentials(good, "paris-0", now).ok());
  for (std::string PemCredentials::*part : {&PemCredentials::ca_pem, &PemCredentials::certificate_pem, &PemCredentials::private_key_pem}) {
    uint64_t refused = 0;
    for (uint64_t seed = 0; seed < kMutants; ++seed) {
      PemCredentials mutant = good;
      mutant.*part = Mutate(good.*part, seed);
      SCOPED_TRACE(absl::StrCat("seed ", seed, ":\n", mutant.*part));
      const absl::Status status = CheckCredentials(mutant, "paris-0", now);
      if (!status.ok()) {
        ++refused;
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      } else {
        EXPECT_EQ(Canonical(mutant.ca_pem), Canonical(good.ca_pem));
        EXPECT_EQ(Canonical(mutant.certificate_pem), Canonical(good.certificate_pem));
      }
    }
    EXPECT_GT(refused, kMutants / 2) << "the mutations are too tame to test anything";
    EXPECT_LT(refused, kMutants) << "the mutations are too wild to test anything";
  }
}

}  // namespace
}  // namespace fusionllm::security
