#include "cli/join/log_tailer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {
namespace {

class LogTailerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    out_ = std::fopen((folder_ / "out").c_str(), "w");
    ASSERT_NE(out_, nullptr);
  }
  void TearDown() override { std::fclose(out_); }
  void Append(const std::string& text) { std::ofstream(folder_ / "log", std::ios::binary | std::ios::app) << text; }
  std::string Shown() { return base::ReadWholeFile(folder_ / "out"); }

  const base::TempFolder folder_;
  std::FILE* out_ = nullptr;
};

TEST_F(LogTailerTest, ShowsWholeLinesOnceAsTheyCome) {
  LogTailer echo(folder_ / "log", out_);
  echo.Show();
  EXPECT_EQ(Shown(), "") << "there is no log yet";
  Append("first\nsec");
  echo.Show();
  EXPECT_EQ(Shown(), "first\n");
  Append("ond\n");
  echo.Show();
  echo.Show();
  EXPECT_EQ(Shown(), "first\nsecond\n");
  Append("torn");
  echo.Show();
  EXPECT_EQ(Shown(), "first\nsecond\n");
  echo.ShowRest();
  EXPECT_EQ(Shown(), "first\nsecond\ntorn\n");
}

TEST_F(LogTailerTest, ALineWithoutEndIsNotWaitedFor) {
  LogTailer echo(folder_ / "log", out_);
  const std::string line(200'000, 'x');
  Append(line);
  echo.Show();
  EXPECT_FALSE(Shown().empty());
  echo.ShowRest();
  EXPECT_EQ(Shown(), line + "\n");
}

}  // namespace
}  // namespace fusionllm::cli
