// The program itself, called wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/daemon/testing/program.h"

namespace fusionllm::services {
namespace {

using daemon::Program;
using testing::AllOf;
using testing::HasSubstr;

// With all that it must have, of which nothing is there.
std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--job", "/nonexistent/job.yaml", "--output",   "/nonexistent", "--base",
                                        "/",     "--scheduler",           "127.0.0.1:0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(BrokerProgram, SecondsThatAreNoneAreNamedWithTheirFlag) {
  for (const std::string flag : {"--gather-seconds", "--await-data-seconds", "--await-executors-seconds"}) {
    for (const char* seconds : {"nan", "inf", "-1", "1e300"}) {
      Program program("fusion-broker", With({absl::StrCat(flag, "=", seconds)}), STDERR_FILENO);
      EXPECT_THAT(program.Line(), AllOf(HasSubstr(flag), HasSubstr(seconds), HasSubstr("number of seconds")));
      EXPECT_EQ(program.Wait(), 2) << flag << " " << seconds;
    }
  }
}

TEST(BrokerProgram, AJobThatIsNotThereIsBadInput) {
  Program program("fusion-broker", With({"--gather-seconds", "5", "--await-data-seconds", "0"}), STDERR_FILENO);
  EXPECT_THAT(program.Line(), HasSubstr("/nonexistent/job.yaml"));
  EXPECT_EQ(program.Wait(), 2);
}

}  // namespace
}  // namespace fusionllm::services
