// Somebody who has got hold of a run's join token, and of no more: what it buys, and that the run goes on as if nobody had come.
#include <memory>
#include <string>

#include "cli/join/join_run.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenThiefTest : public JoinTest {
 protected:
  absl::StatusOr<Enrolled> Buy(const std::string& name, const std::string& token) const {
    JoinOptions options;
    options.address = address_;
    options.token = token;
    options.name = name;
    return Enroll(options);
  }
};

TEST_F(TokenThiefTest, NamesOfTheRunsOwnProcessesAreNotForSaleHoweverTheyAreSpelt) {
  const auto run = Listen(2);
  for (const char* name : {"broker", "Broker", "BROKER", "scheduler", "Scheduler", "local-0", "LOCAL-0", "Local-0", "ca", "localhost",
                           "127.0.0.1", "a/b", ".."}) {
    const auto bought = Buy(name, token_);
    EXPECT_FALSE(bought.ok()) << name;
  }
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130) << run->words();
}

TEST_F(TokenThiefTest, WhoEnrollsAndStaysAwayHoldsNobodyUp) {
  const auto run = Listen(2);
  for (const char* name : {"mallory", "trudy"}) EXPECT_TRUE(Buy(name, token_).ok()) << name;
  EXPECT_FALSE(Buy("MALLORY", token_).ok()) << "it is kept for who enrolled";
  std::string wrong = token_;
  wrong.back() = wrong.back() == 'A' ? 'B' : 'A';
  EXPECT_FALSE(Buy("eve", wrong).ok());
  const auto honest = Join("honest", {"--name", "honest"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << honest->words();
  EXPECT_EQ(honest->Wait(), 0) << honest->words();
  EXPECT_THAT(run->LossBits(), testing::SizeIs(4));
  EXPECT_THAT(run->words(), Not(HasSubstr("mallory")));
}

}  // namespace
}  // namespace fusionllm::cli
