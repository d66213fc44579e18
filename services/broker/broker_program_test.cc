// The program itself, called wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/program.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "lib/security/grpc_messages/testing/compressed_call.h"

namespace fusionllm::services {
namespace {

using daemon::Program;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kTextJob[] =
    "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {family: gpt2, "
    "preset: tiny}, data: {kind: text, path: [a]}, training: {steps: 5, sequenceLength: 64}}}";

// With all that it must have, of which nothing is there.
std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--job", "/nonexistent/job.yaml", "--output",   "/nonexistent", "--base",
                                        "/",     "--scheduler",           "127.0.0.1:0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(BrokerProgram, SecondsThatAreNoneAreNamedWithTheirFlag) {
  for (const std::string flag : {"--join-timeout-seconds", "--data-timeout-seconds", "--executor-timeout-seconds"}) {
    for (const char* seconds : {"nan", "inf", "-1", "1e300"}) {
      Program program("fusion-broker", With({absl::StrCat(flag, "=", seconds)}), STDERR_FILENO);
      EXPECT_THAT(program.Line(), AllOf(HasSubstr(flag), HasSubstr(seconds), HasSubstr("number of seconds")));
      EXPECT_EQ(program.Wait(), 2) << flag << " " << seconds;
    }
  }
}

TEST(BrokerProgram, AJobThatIsNotThereIsBadInput) {
  Program program("fusion-broker", With({"--join-timeout-seconds", "5", "--data-timeout-seconds", "0"}), STDERR_FILENO);
  EXPECT_THAT(program.Line(), HasSubstr("/nonexistent/job.yaml"));
  EXPECT_EQ(program.Wait(), 2);
}

TEST(BrokerProgram, AStartThatFailsLeavesItsSentenceInTheFileOfTheReport) {
  const base::TempFolder folder;
  Program program("fusion-broker", With({"--final-report", folder / "message"}), STDERR_FILENO);
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(base::ReadWholeFile(folder / "message"), AllOf(StartsWith("cannot read /nonexistent/job.yaml"), EndsWith("\n")));
}

// Where both streams are one log.
TEST(BrokerProgram, AmongJsonLinesAnErrorIsWrittenOnceAndInTheRecord) {
  Program errors("fusion-broker", With({"--log-format", "json"}), STDERR_FILENO);
  EXPECT_EQ(errors.Line(), "") << "the end of the output";
  EXPECT_EQ(errors.Wait(), 2);
  Program record("fusion-broker", With({"--log-format", "json"}), STDOUT_FILENO);
  EXPECT_THAT(record.Line(), AllOf(StartsWith("{"), HasSubstr("\"type\":\"error\""), HasSubstr("/nonexistent/job.yaml")));
  EXPECT_EQ(record.Wait(), 2);
}

// As in a cluster, where each broker may take over a run: the next start would be refused as well.
TEST(BrokerProgram, AStoreThatRefusesTheKeyEndsItForGood) {
  objectstore::testing::FakeS3 store;
  store.SetEnvironment();
  store.SetHook([](const objectstore::testing::FakeRequest&, kube::testing::RawConnection& connection) {
    connection.Answer(403, objectstore::testing::FakeS3::Error("InvalidAccessKeyId", "there is no such key"));
    return true;
  });
  const base::TempFolder folder;
  std::string text = kTextJob;
  text.replace(text.find("training:"), 0, "checkpoint: {path: \"s3://models/run\"}, ");
  const std::string job = folder.Write("job.yaml", text);
  Program program("fusion-broker",
                  {"--job", job, "--output", folder.path(), "--base", folder.path(), "--scheduler", "127.0.0.1:0", "--expected-executors",
                   "a", "--resume-journal", "--final-report", folder / "message"},
                  STDERR_FILENO);
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(base::ReadWholeFile(folder / "message"), AllOf(HasSubstr("s3://models"), HasSubstr("HTTP 403 InvalidAccessKeyId")));
}

// As with --insecure, which a broker without TLS wants where others can reach it.
class ServedBroker : public ::testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--job",        job_,          "--output",    folder_.path(),         "--base",
                                          folder_.path(), "--scheduler", "127.0.0.1:0", "--expected-executors", "a"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const base::TempFolder folder_;
  const std::string job_ = folder_.Write("job.yaml", kTextJob);
};

TEST_F(ServedBroker, PlaintextIsServedToOthersOnlyWithAWord) {
  Program refused("fusion-broker", Arguments({"--listen", "0.0.0.0:0"}), STDERR_FILENO);
  EXPECT_THAT(refused.Line(), AllOf(HasSubstr("--tls"), HasSubstr("--insecure")));
  EXPECT_EQ(refused.Wait(), 2);
}

TEST_F(ServedBroker, ACompressedCallIsRefused) {
  Program program("fusion-broker", Arguments({}));
  std::string line = program.Line();
  while (!line.empty() && !absl::StartsWith(line, "listening on ")) line = program.Line();  // where it is watched comes first
  ASSERT_THAT(line, StartsWith("listening on "));
  EXPECT_EQ(security::CodeOfCompressedCall(line.substr(std::string("listening on ").size())), grpc::StatusCode::UNIMPLEMENTED);
  program.Terminate();
  program.Wait();
}

// gRPC ends a program of itself where it cannot start a thread (SIGABRT), or leaves it without some and would wait for their end for ever.
TEST(BrokerProgram, TooFewThreadsEndTheProgram) {
  const base::TempFolder folder;
  const std::string job = folder.Write("job.yaml", kTextJob);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);  // for whom the limit binds
  int ended = 0;
  for (int threads = 1; threads <= 14; ++threads) {
    SCOPED_TRACE(threads);
    const std::string output = folder / absl::StrCat("out-", threads);
    std::filesystem::create_directory(output);
    std::filesystem::permissions(output, std::filesystem::perms::all);
    Program program("fusion-broker",
                    {"--job", job, "--output", output, "--base", folder.path(), "--scheduler", "127.0.0.1:0", "--expected-executors", "a"},
                    STDOUT_FILENO, static_cast<rlim_t>(threads));
    if (program.Says("listening on ")) continue;
    ++ended;
    const int code = program.Wait();
    EXPECT_TRUE(code == 1 || code == 128 + SIGABRT) << code;
  }
  EXPECT_GT(ended, 0) << "the limit does not bind here";
}

}  // namespace
}  // namespace fusionllm::services
