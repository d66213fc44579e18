#include "lib/kube/auth/tls_source.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

class TlsSourceTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(ca_) << text; }

  base::TempFolder folder_;
  const std::string ca_ = folder_.path() + "/ca.crt";
  testing::FakeClock clock_;
};

TEST_F(TlsSourceTest, ARotatedAuthorityIsReadWithinAMinute) {
  Write("one");
  TlsSource source({.path = ca_}, {}, {}, nullptr, clock_);
  const auto first = *source.Get();
  EXPECT_EQ(first->ca_pem, "one");
  clock_.Advance(absl::Minutes(1));
  // The same object: connections stay open.
  EXPECT_EQ(*source.Get(), first);
  Write("two");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ((*source.Get())->ca_pem, "two");
}

TEST_F(TlsSourceTest, AFileThatIsGoneOrEmptyKeepsWhatWasRead) {
  TlsSource source({.path = ca_}, {}, {}, nullptr, clock_);
  EXPECT_TRUE(absl::IsNotFound(source.Get().status()));
  Write("one");
  EXPECT_EQ((*source.Get())->ca_pem, "one");
  // An empty authority would mean those of the machine.
  Write("");
  clock_.Advance(absl::Minutes(1));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ((*source.Get())->ca_pem, "one");
  std::remove(ca_.c_str());
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ((*source.Get())->ca_pem, "one");
  ::testing::internal::GetCapturedStderr();
}

TEST_F(TlsSourceTest, ACertificateOfTheCredentialsGoesBeforeTheFiles) {
  const auto credentials = StaticCredentials({.certificate_pem = "C", .key_pem = "K"});
  TlsSource source({.data = "CA"}, {.data = "old"}, {.data = "old key"}, credentials, clock_);
  EXPECT_EQ(**source.Get(), (TlsMaterial{"CA", "C", "K"}));
  TlsSource without({.data = "CA"}, {.data = "old"}, {.data = "old key"}, StaticCredentials({.token = "t"}), clock_);
  EXPECT_EQ(**without.Get(), (TlsMaterial{"CA", "old", "old key"}));
}

}  // namespace
}  // namespace fusionllm::kube
