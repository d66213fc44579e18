#include "lib/base/certificate_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CertificateClockTest, CertificateDateErrorsIncludeLocalTime) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_THAT(
      WithClock("SSL certificate problem: certificate is not yet valid", now),
      AllOf(StartsWith("SSL certificate problem: certificate is not yet valid"), HasSubstr("says 2023-11-14 22:13:20Z: it is behind")));
  EXPECT_THAT(WithClock("SSL certificate problem: certificate has expired", now),
              AllOf(HasSubstr("says 2023-11-14 22:13:20Z"), HasSubstr("out of date, or the clock is ahead")));
  EXPECT_THAT(WithClock("error:0A000415:SSL routines::sslv3 alert certificate expired", now),
              HasSubstr("; the other end says so of the certificate it was shown, by its own clock; the clock of this machine says "));
}

TEST(CertificateClockTest, OtherErrorsAreLeftAsTheyAre) {
  for (const char* error : {"", "SSL certificate problem: unable to get local issuer certificate", "Connection refused"}) {
    EXPECT_EQ(WithClock(error), error);
  }
}

}  // namespace
}  // namespace fusionllm::base
