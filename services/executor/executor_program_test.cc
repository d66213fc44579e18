// The program itself before it has found a broker: watched, asked to end, called wrongly.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/http_get.h"
#include "lib/daemon/testing/program.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

using daemon::MetricsAddress;
using daemon::Program;

using ::testing::AllOf;
using ::testing::HasSubstr;

// Where nothing listens.
constexpr char kUnreachableBroker[] = "127.0.0.1:0";

TEST(ExecutorProgram, IsAliveAndNotReadyWhileItLooksForItsBroker) {
  Program program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a"});
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
  Program program("fusion-executor",
                  {"--broker", kUnreachableBroker, "--name", "a", "--metrics-address", "off", "--broker-timeout-seconds", "0"});
  EXPECT_EQ(program.Line(), "") << "the end of the output";
  EXPECT_EQ(program.Wait(), 1) << "the broker stays away";
}

TEST(ExecutorProgram, WhoseBrokerIsGoneForGoodEndsSoThatTheKubeletLeavesItAlone) {
  const base::TempFolder folder;
  const auto start = [&](const char* lost_seconds) {
    return Program("fusion-executor",
                   {"--broker", kUnreachableBroker, "--name", "a", "--metrics-address", "off", "--broker-timeout-seconds", "0",
                    "--contact-file", folder / "contact", "--broker-lost-seconds", lost_seconds, "--termination-log", folder / "message"})
        .Wait();
  };
  const auto message = [&] { return base::ReadSmallFile(folder / "message", 1000).value_or("none"); };
  EXPECT_EQ(start("3600"), 1) << "not yet";
  EXPECT_THAT(message(), ::testing::HasSubstr("cannot be reached")) << "its failure, as that of any container";
  // As after an hour of starting again and again.
  folder.Write("contact", absl::StrCat(absl::ToUnixSeconds(absl::Now() - absl::Hours(1))));
  EXPECT_EQ(start("3600"), 0);
  EXPECT_THAT(message(), ::testing::StartsWith("BrokerLost: "));
}

// Takes one executor's greeting.
class Greeted final : public v1::Broker::Service {
 public:
  // `refuse`: the reason of a refusal in words, on the stream; empty: none is given.
  explicit Greeted(std::string refuse = "") : refuse_(std::move(refuse)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Greeted() override { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return address_; }
  // Null: none has come within a minute.
  std::optional<v1::Hello> Hello() {
    std::future<v1::Hello> greeting = greeting_.get_future();
    if (greeting.wait_for(std::chrono::minutes(1)) != std::future_status::ready) return std::nullopt;
    return greeting.get();
  }

 private:
  grpc::Status Attend(grpc::ServerContext*, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>* stream) override {
    v1::ExecutorMessage message;
    stream->Read(&message);
    if (!greeted_.exchange(true)) greeting_.set_value(message.hello());
    if (!refuse_.empty()) {
      v1::BrokerMessage refusal;
      refusal.mutable_refusal()->set_reason(refuse_);
      stream->Write(refusal);
    }
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "one is enough");
  }
  const std::string refuse_;
  std::promise<v1::Hello> greeting_;
  std::atomic<bool> greeted_ = false;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST(ExecutorProgram, TellsItsBrokerWhatItAdvertisesAndWhereItListens) {
  Greeted broker;
  Program program("fusion-executor", {"--broker", broker.address(), "--name", "a", "--metrics-address", "off", "--listen", "127.0.0.1:0",
                                      "--advertise", "lab.example.org:17001"});
  const std::optional<v1::Hello> hello = broker.Hello();
  ASSERT_TRUE(hello.has_value()) << "it never dialled";
  EXPECT_FALSE(hello->has_attempt()) << "nobody has told it of any";
  EXPECT_EQ(hello->data_address(), "lab.example.org:17001");
  EXPECT_THAT(hello->site_address(), ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
}

TEST(ExecutorProgram, TouchWithItsBrokerIsWrittenDown) {
  const base::TempFolder folder;
  folder.Write("contact", "1000\n");
  Greeted broker("NotExpected");
  Program program("fusion-executor", {"--broker", broker.address(), "--name", "a", "--metrics-address", "off", "--contact-file",
                                      folder / "contact", "--broker-lost-seconds", "3600"});
  EXPECT_EQ(program.Wait(), 1) << "refused by a broker that is there, so its failure stays one";
  EXPECT_NE(base::ReadSmallFile(folder / "contact", 100).value_or(""), "1000\n");
}

TEST(ExecutorProgram, WhoIsOfAnEarlierAttemptEndsSoThatTheKubeletLeavesItAlone) {
  Greeted broker(kSupersededAttempt);
  Program program("fusion-executor", {"--broker", broker.address(), "--name", "a", "--metrics-address", "off", "--attempt", "0"});
  const std::optional<v1::Hello> hello = broker.Hello();
  ASSERT_TRUE(hello.has_value()) << "it never dialled";
  EXPECT_TRUE(hello->has_attempt());
  EXPECT_EQ(hello->attempt(), 0);
  EXPECT_EQ(program.Wait(), 0);
}

TEST(ExecutorProgram, BadUsageIsExitCodeTwo) {
  EXPECT_EQ(Program("fusion-executor", {"--name", "a"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--log-level", "loud"}).Wait(), 2);
  for (const std::string& name : {std::string(), std::string("../x"), std::string("a,b"), std::string("a\nb"), std::string(254, 'a')}) {
    EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", name}).Wait(), 2) << name;
  }
  for (const char* flag : {"--memory-bytes", "--incarnation", "--attempt"}) {
    EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", flag, "-1"}).Wait(), 2) << flag;
  }
  for (const char* nowhere : {"", "localhost", "::1:1", "lab:http"}) {
    EXPECT_EQ(Program("fusion-executor", {"--broker", nowhere, "--name", "a"}).Wait(), 2) << nowhere;
  }
  EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--metrics-address", "everywhere"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--tls", "/nonexistent"}).Wait(), 2);
  EXPECT_EQ(Program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--advertise", "lab:7001"}).Wait(), 2)
      << "without --listen";
  EXPECT_EQ(Program("fusion-executor", {"--version"}).Wait(), 0);
}

TEST(ExecutorProgram, PlaintextIsServedToOthersOnlyWithAWord) {
  Program program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--listen", "0.0.0.0:0"}, STDERR_FILENO);
  std::string said;
  for (std::string line = program.Line(); !line.empty(); line = program.Line()) said += line + "\n";
  EXPECT_THAT(said, AllOf(HasSubstr("--tls"), HasSubstr("--insecure")));
  EXPECT_EQ(program.Wait(), 2);
}

TEST(ExecutorProgram, SecondsThatAreNoneAreNamedWithTheirFlag) {
  for (const std::string flag : {"--broker-timeout-seconds", "--broker-lost-seconds"}) {
    for (const char* seconds : {"nan", "inf", "-1"}) {
      // Wherever they are taken, it is over at once all the same.
      Program program("fusion-executor",
                      {"--broker", kUnreachableBroker, "--name", "a", "--contact-file", "/nonexistent/file", "--tls", "/nonexistent",
                       absl::StrCat(flag, "=", seconds)},
                      STDERR_FILENO);
      EXPECT_THAT(program.Line(), AllOf(HasSubstr(flag), HasSubstr(seconds), HasSubstr("number of seconds")));
      EXPECT_EQ(program.Wait(), 2) << flag << " " << seconds;
    }
  }
}

TEST(ExecutorProgram, AnAddressThatCannotBeAdvertisedIsNamed) {
  for (const char* address : {"", "lab", "lab:0", "lab:70000"}) {
    Program program("fusion-executor", {"--broker", kUnreachableBroker, "--name", "a", "--listen", "127.0.0.1:0", "--advertise", address},
                    STDERR_FILENO);
    EXPECT_THAT(program.Line(), AllOf(HasSubstr("--advertise"), HasSubstr(address)));
    EXPECT_EQ(program.Wait(), 2) << address;
  }
}

}  // namespace
}  // namespace fusionllm::services
