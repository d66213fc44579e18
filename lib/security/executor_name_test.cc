#include "lib/security/executor_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::security {
namespace {

TEST(ExecutorNameTest, NamesOfServicesAndOfNoProcessAreRefusedInAnyCase) {
  for (const char* name : {"broker", "Scheduler", "CLIENT", "ca", "Ca", "localhost", "127.0.0.1", ""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckExecutorName(name))) << name;
  }
  EXPECT_THAT(std::string(CheckExecutorName("Broker").message()), ::testing::HasSubstr("the name 'Broker' is taken"));
  for (const char* name : {"paris-0", "brokers", "a.b_c"}) EXPECT_TRUE(CheckExecutorName(name).ok()) << name;
}

TEST(ExecutorNameTest, NamesThatDifferInCaseAreOne) {
  const CaseInsensitiveLess less;
  EXPECT_FALSE(less("Paris", "pARIS") || less("pARIS", "Paris"));
  EXPECT_TRUE(less("paris", "Tokyo") && !less("Tokyo", "paris"));
}

}  // namespace
}  // namespace fusionllm::security
