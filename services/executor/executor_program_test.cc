// The program itself before it has found a broker: watched, told to end, called wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/daemon/testing/http_get.h"
#include "lib/daemon/testing/program.h"

namespace fusionllm::services {
namespace {

using daemon::MetricsAddress;
using daemon::Program;

using testing::AllOf;
using testing::HasSubstr;

// Where nobody listens.
constexpr char kNobody[] = "127.0.0.1:0";

TEST(ExecutorProgram, IsAliveAndNotReadyWhileItLooksForItsBroker) {
  Program program("fusion-executor", {"--broker", kNobody, "--name", "a"});
  const std::string address = MetricsAddress(program.Line());
  ASSERT_FALSE(address.empty());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(daemon::HttpGet(address, "/healthz").code, 200);
  const daemon::HttpResponse ready = daemon::HttpGet(address, "/readyz");
  EXPECT_EQ(ready.code, 503);
  EXPECT_THAT(ready.body, HasSubstr("not joined"));
  EXPECT_THAT(daemon::HttpGet(address, "/metrics").body, AllOf(HasSubstr("fusionllm_build_info{program=\"fusion-executor\""),
                                                               HasSubstr("fusionllm_device_memory_bytes{kind=\"resident\"}")));
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(ExecutorProgram, WithoutMetricsNothingIsServedOrSaid) {
  Program program("fusion-executor", {"--broker", kNobody, "--name", "a", "--metrics-address", "off", "--patience-seconds", "0"});
  EXPECT_EQ(program.Line(), "") << "the end of the output";
  EXPECT_EQ(program.Wait(), 1) << "the broker stays away";
}

TEST(ExecutorProgram, BadUsageIsExitCodeTwo) {
  EXPECT_EQ(Program("fusion-executor", {"--name", "a"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kNobody, "--name", "a", "--log-level", "loud"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kNobody, "--name", "a", "--metrics-address", "everywhere"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kNobody, "--name", "a", "--tls", "/nonexistent"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--version"}).Wait(), 0);
}

}  // namespace
}  // namespace fusionllm::services
