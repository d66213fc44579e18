#include "lib/kube/auth/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

class TokenFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  std::string Token() {
    const auto credentials = source_.Get({});
    return credentials.ok() ? (*credentials)->token : credentials.status().ToString();
  }

  base::TempFolder folder_;
  const std::string path_ = folder_.path() + "/token";
  testing::FakeClock clock_;
  TokenFile source_{path_, clock_};
};

TEST_F(TokenFileTest, IsReadAgainBeforeAMinuteIsOver) {
  Write("one\n");
  EXPECT_EQ(Token(), "one");
  Write("two\n");
  clock_.Advance(absl::Seconds(49));
  EXPECT_EQ(Token(), "one");
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Token(), "two");
}

TEST_F(TokenFileTest, SettingTheClockDoesNotKeepAnOldToken) {
  Write("one");
  EXPECT_EQ(Token(), "one");
  Write("two");
  clock_.SetNow(clock_.Now() - absl::Hours(24));
  clock_.Advance(absl::Seconds(50));
  EXPECT_EQ(Token(), "two");
}

TEST_F(TokenFileTest, TheLastTokenStaysInUseWhileTheFileIsGoneOrEmpty) {
  Write(" one ");
  EXPECT_EQ(Token(), "one");
  Write("");
  clock_.Advance(absl::Minutes(2));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Token(), "one");
  std::remove(path_.c_str());
  EXPECT_EQ(Token(), "one");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::HasSubstr("the last one stays in use"));
  EXPECT_THAT(log, ::testing::Not(::testing::HasSubstr("one\n")));
  // Looked for again at each call, not after another minute.
  Write("two");
  EXPECT_EQ(Token(), "two");
}

TEST_F(TokenFileTest, ARefusedTokenIsReadAgainAtOnce) {
  Write("one");
  EXPECT_EQ(Token(), "one");
  Write("two");
  source_.Refused({.token = "one"});
  EXPECT_EQ(Token(), "two");
  // That a request with the old one, sent before, is refused only now says nothing of the new one.
  Write("three");
  source_.Refused({.token = "one"});
  EXPECT_EQ(Token(), "two");
}

TEST_F(TokenFileTest, WithoutAnyTokenThereIsAnError) {
  const auto error = [&](const char* why) {
    const absl::Status status = source_.Get({}).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(::testing::HasSubstr("no credentials: "), ::testing::HasSubstr(why)));
  };
  error("cannot be read");
  Write("  \n");
  error("is empty");
  Write("two\nlines\n");
  error("holds a control character");
  Write(std::string(100'000, 't'));
  error("is longer than");
}

TEST(RedactSecret, TakesOutEveryOccurrence) {
  EXPECT_EQ(RedactSecret("a token, a token", "token"), "a [redacted], a [redacted]");
  EXPECT_EQ(RedactSecret("nothing", ""), "nothing");
}

}  // namespace
}  // namespace fusionllm::kube
