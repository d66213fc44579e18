// The program itself: start, health, a plan call, an orderly end.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "lib/daemon/testing/http_get.h"
#include "lib/daemon/testing/program.h"
#include "lib/security/grpc_messages/testing/compressed_call.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"
#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

using daemon::MetricsAddress;
using daemon::Program;

TEST(SchedulerProgram, ServesUntilTerminated) {
  Program program("fusion-scheduler", {"--insecure"});
  const std::string line = program.Line();
  ASSERT_THAT(line, ::testing::StartsWith("listening on 127.0.0.1:"));
  const auto stub =
      v1::Scheduler::NewStub(grpc::CreateChannel(line.substr(std::string("listening on ").size()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_wait_for_ready(true);
  v1::PlanResponse response;
  EXPECT_EQ(stub->Plan(&context, {}, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(SchedulerProgram, IsWatchedOverHttpAndGrpc) {
  Program program("fusion-scheduler", {"--insecure"});
  const std::string listening = program.Line();
  const auto channel = grpc::CreateChannel(listening.substr(std::string("listening on ").size()), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(CheckHealth(*channel, absl::Seconds(60)).ok());
  const std::string address = MetricsAddress(program.Line());
  EXPECT_EQ(daemon::HttpGet(address, "/healthz").code, 200);
  EXPECT_EQ(daemon::HttpGet(address, "/readyz").code, 200);
  const std::string before = daemon::HttpGet(address, "/metrics").body;
  EXPECT_THAT(before, ::testing::HasSubstr("fusionllm_plans_in_flight 0\n"));
  EXPECT_THAT(before, ::testing::Not(::testing::HasSubstr("fusionllm_plans_total{")));
  v1::PlanResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(v1::Scheduler::NewStub(channel)->Plan(&context, {}, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(daemon::HttpGet(address, "/metrics").body, ::testing::HasSubstr("fusionllm_plans_total{outcome=\"invalid\"} 1\n"));
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(SchedulerProgram, IsWatchedOverAnAddressOfIpv6) {
  Program program("fusion-scheduler", {"--insecure", "--listen", "[::1]:0", "--metrics-address", "[::1]:0"});
  const std::string listening = program.Line();
  EXPECT_THAT(listening, ::testing::StartsWith("listening on [::1]:"));
  const auto channel = grpc::CreateChannel(listening.substr(std::string("listening on ").size()), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(CheckHealth(*channel, absl::Seconds(60)).ok());
  EXPECT_EQ(daemon::HttpGet(MetricsAddress(program.Line()), "/metrics").code, 200);
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(SchedulerProgram, ACompressedCallIsRefused) {
  Program program("fusion-scheduler", {"--insecure"});
  const std::string listening = program.Line();
  EXPECT_EQ(security::CodeOfCompressedCall(listening.substr(std::string("listening on ").size())), grpc::StatusCode::UNIMPLEMENTED);
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(SchedulerProgram, AMetricsAddressThatIsTakenIsNamedWithItsFlag) {
  Program first("fusion-scheduler", {"--insecure"});
  first.Line();
  const std::string address = MetricsAddress(first.Line());
  Program second("fusion-scheduler", {"--insecure", "--metrics-address", address}, STDERR_FILENO);
  std::string said;
  for (std::string line = second.Line(); !line.empty(); line = second.Line()) said += line + "\n";
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(said,
              ::testing::AllOf(::testing::HasSubstr("--metrics-address"), ::testing::HasSubstr(address), ::testing::HasSubstr("in use")));
  EXPECT_EQ(Program("fusion-scheduler", {"--insecure", "--metrics-address", "here"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-scheduler", {"--insecure", "--log-level", "loud"}).Wait(), 2);
}

// gRPC ends a program of itself where it cannot start a thread (SIGABRT), or leaves it without some and would wait for their end for ever.
TEST(SchedulerProgram, TooFewThreadsEndTheProgram) {
  int ended = 0;
  for (int threads = 1; threads <= 14; ++threads) {
    SCOPED_TRACE(threads);
    Program program("fusion-scheduler", {"--insecure"}, STDOUT_FILENO, static_cast<rlim_t>(threads));
    if (program.Says("metrics on ")) continue;
    ++ended;
    const int code = program.Wait();
    EXPECT_TRUE(code == 1 || code == 128 + SIGABRT) << code;
  }
  EXPECT_GT(ended, 0) << "the limit does not bind here";
}

TEST(SchedulerProgram, RequiresTlsOrInsecureFlag) { EXPECT_EQ(Program("fusion-scheduler", {}).Wait(), 2); }

TEST(SchedulerProgram, MissingCredentialsAndUnknownFlagsAreBadUsage) {
  EXPECT_EQ(Program("fusion-scheduler", {"--tls", "/nonexistent"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-scheduler", {"--insecure", "--colour", "red"}).Wait(), 2);
}

TEST(SchedulerProgram, AnAddressThatIsTakenIsAFailure) {
  Program first("fusion-scheduler", {"--insecure"});
  const std::string line = first.Line();
  EXPECT_EQ(Program("fusion-scheduler", {"--insecure", "--listen", line.substr(line.rfind(' ') + 1)}).Wait(), 1);
}

}  // namespace
}  // namespace fusionllm::services
