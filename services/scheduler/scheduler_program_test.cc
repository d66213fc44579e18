// The program itself: start, health, a plan call, an orderly end.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "lib/daemon/testing/http_get.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"
#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

class Program {
 public:
  // What it writes to `descriptor` can be read by Line().
  explicit Program(std::vector<std::string> arguments, int descriptor = STDOUT_FILENO) {
    const char* folder = std::getenv("FUSIONLLM_BIN_DIR");
    arguments.insert(arguments.begin(), std::string(folder == nullptr ? "." : folder) + "/fusion-scheduler");
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], descriptor);
      close(ends[0]);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    fclose(out_);
  }

  // The next line of stdout, without its end; empty at the end.
  std::string Line() {
    std::string line;
    for (int c = fgetc(out_); c != EOF && c != '\n'; c = fgetc(out_)) line.push_back(static_cast<char>(c));
    return line;
  }
  void Terminate() const { kill(pid_, SIGTERM); }
  // Exit code, or 128 and the signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

TEST(SchedulerProgram, ServesUntilItIsTold) {
  Program program({"--insecure"});
  const std::string line = program.Line();
  ASSERT_THAT(line, testing::StartsWith("listening on 127.0.0.1:"));
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

// Where the program's second line says.
std::string MetricsAddress(Program& program) {
  const std::string line = program.Line();
  EXPECT_THAT(line, testing::AllOf(testing::StartsWith("metrics on http://127.0.0.1:"), testing::EndsWith("/metrics")));
  const std::string url = line.substr(line.find("//") + 2);
  return url.substr(0, url.find('/'));
}

TEST(SchedulerProgram, IsWatchedOverHttpAndGrpc) {
  Program program({"--insecure"});
  const std::string listening = program.Line();
  const auto channel = grpc::CreateChannel(listening.substr(std::string("listening on ").size()), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(CheckHealth(*channel, absl::Seconds(60)).ok());
  const std::string address = MetricsAddress(program);
  EXPECT_EQ(daemon::HttpGet(address, "/healthz").code, 200);
  EXPECT_EQ(daemon::HttpGet(address, "/readyz").code, 200);
  const std::string before = daemon::HttpGet(address, "/metrics").body;
  EXPECT_THAT(before, testing::HasSubstr("fusionllm_plans_in_flight 0\n"));
  EXPECT_THAT(before, testing::Not(testing::HasSubstr("fusionllm_plans_total{")));
  v1::PlanResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(v1::Scheduler::NewStub(channel)->Plan(&context, {}, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(daemon::HttpGet(address, "/metrics").body, testing::HasSubstr("fusionllm_plans_total{outcome=\"invalid\"} 1\n"));
  program.Terminate();
  EXPECT_EQ(program.Wait(), 0);
}

TEST(SchedulerProgram, AMetricsAddressThatIsTakenIsNamedWithItsFlag) {
  Program first({"--insecure"});
  first.Line();
  const std::string address = MetricsAddress(first);
  Program second({"--insecure", "--metrics-address", address}, STDERR_FILENO);
  std::string said;
  for (std::string line = second.Line(); !line.empty(); line = second.Line()) said += line + "\n";
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(said, testing::AllOf(testing::HasSubstr("--metrics-address"), testing::HasSubstr(address), testing::HasSubstr("in use")));
  EXPECT_EQ(Program({"--insecure", "--metrics-address", "here"}).Wait(), 2);
  EXPECT_EQ(Program({"--insecure", "--log-level", "loud"}).Wait(), 2);
}

TEST(SchedulerProgram, WantsToBeToldHowToServe) { EXPECT_EQ(Program({}).Wait(), 2); }

TEST(SchedulerProgram, MissingCredentialsAndUnknownFlagsAreBadUsage) {
  EXPECT_EQ(Program({"--tls", "/nonexistent"}).Wait(), 2);
  EXPECT_EQ(Program({"--insecure", "--colour", "red"}).Wait(), 2);
}

TEST(SchedulerProgram, AnAddressThatIsTakenIsAFailure) {
  Program first({"--insecure"});
  const std::string line = first.Line();
  EXPECT_EQ(Program({"--insecure", "--listen", line.substr(line.rfind(' ') + 1)}).Wait(), 1);
}

}  // namespace
}  // namespace fusionllm::services
