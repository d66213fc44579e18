#include "lib/base/thread_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

using ::testing::HasSubstr;

TEST(ThreadLimit, DistinguishesRefusedThreadFromOtherErrors) {
  EXPECT_TRUE(IsThreadLimitError(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))));
  EXPECT_FALSE(IsThreadLimitError(std::system_error(std::make_error_code(std::errc::no_such_file_or_directory))));
  EXPECT_THAT(ThreadLimitMessage("fusion-broker"), HasSubstr("cannot start fusion-broker: the system refuses more threads and processes"));
}

TEST(ThreadLimit, LogsOfLibrariesThatAbortNameItAsTheLikelyCause) {
  for (const char* log :
       {"E0000 thd.cc:157] pthread_create failed: Resource temporarily unavailable\n",
        "F0000 work_stealing_thread_pool.cc:92] Check failed: worker->created() \n*** Check failure stack trace: ***\n"}) {
    EXPECT_THAT(LikelyThreadLimit(log), HasSubstr("ulimit -u")) << log;
  }
  EXPECT_EQ(LikelyThreadLimit("error fusion-broker: job.yaml: no such file\n"), "");
  EXPECT_EQ(LikelyThreadLimit("error fusion-broker: " + ThreadLimitMessage("a thread")), "") << "it says so itself";
}

}  // namespace
}  // namespace fusionllm::base
