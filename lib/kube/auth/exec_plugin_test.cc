#include "lib/kube/auth/exec_plugin.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/api/time.h"
#include "lib/kube/auth/child_program.h"
#include "lib/kube/auth/testing/exec_version.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;
using testing::kExecVersion;
using ::testing::Not;

class ExecPluginTest : public ::testing::Test {
 protected:
  // A program of these lines of shell.
  ExecConfig Program(const std::string& lines) {
    const std::string path = folder_.path() + "/login";
    std::ofstream(path) << "#!/bin/sh\ncd " << folder_.path() << "\n" << lines << "\n";
    chmod(path.c_str(), 0755);
    return {.api_version = kExecVersion, .command = path};
  }
  // Prints token-1, token-2, ... and when each expires.
  ExecConfig Counting(absl::Time expires) {
    return Program(
        absl::StrCat("echo x >> runs\n",
                     R"(printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"token-%d",)",
                     R"("expirationTimestamp":")", TimeText(expires), R"("}}' $(wc -l < runs))"));
  }
  std::string Read(const std::string& name) {
    std::ifstream file(folder_.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::shared_ptr<CredentialSource> Source(const ExecConfig& exec, const ClientConfig& config = {},
                                           absl::Duration timeout = absl::Minutes(1)) {
    auto source = MakeExecPlugin(exec, config, clock_, nullptr, timeout);
    EXPECT_TRUE(source.ok()) << source.status();
    return *source;
  }
  static std::string Token(CredentialSource& source) {
    const auto credentials = source.Get({});
    return credentials.ok() ? (*credentials)->token : credentials.status().ToString();
  }

  base::TempFolder folder_;
  testing::FakeClock clock_;
  ProgramReport report_;
};

TEST_F(ExecPluginTest, WhatItPrintsIsKeptUntilItExpires) {
  const auto source = Source(Counting(clock_.Now() + absl::Minutes(15)));
  EXPECT_EQ(Token(*source), "token-1");
  clock_.Advance(absl::Minutes(14));
  EXPECT_EQ(Token(*source), "token-1");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Token(*source), "token-2");
}

TEST_F(ExecPluginTest, ARefusedTokenIsMadeAgain) {
  const auto source = Source(Counting(clock_.Now() + absl::Minutes(15)));
  EXPECT_EQ(Token(*source), "token-1");
  source->Refused({.token = "token-1"});
  EXPECT_EQ(Token(*source), "token-2");
  source->Refused({.token = "token-1"});
  EXPECT_EQ(Token(*source), "token-2");
}

TEST_F(ExecPluginTest, AProgramThatFailsIsRunAgainAfterAGrowingPause) {
  const auto source = Source(Program("echo x >> runs; exit 3"));
  const auto runs = [&] { return Read("runs").size() / 2; };
  size_t expected = 1;
  for (const int pause_s : {1, 2, 4, 8, 16, 32, 60, 60}) {
    const std::string why = absl::StrCat("ended with 3; it is run again ", absl::FormatDuration(absl::Seconds(pause_s)), " after that");
    EXPECT_THAT(Token(*source), HasSubstr(why));
    EXPECT_EQ(runs(), expected);
    clock_.Advance(absl::Seconds(pause_s) - absl::Milliseconds(1));
    EXPECT_THAT(Token(*source), HasSubstr(why)) << "the same error is the answer meanwhile";
    EXPECT_EQ(runs(), expected++);
    clock_.Advance(absl::Milliseconds(1));
  }
}

TEST_F(ExecPluginTest, AfterCredentialsThatServedForAWhileThePauseIsShortAgain) {
  const auto source = Source(Program("echo x >> runs; exit 3"));
  for (int i = 0; i < 8; ++i) {
    (void)Token(*source);
    clock_.Advance(absl::Minutes(1));
  }
  (void)Counting(clock_.Now() + absl::Minutes(15));  // in its place
  EXPECT_EQ(Token(*source), "token-9");
  (void)Program("exit 4");
  clock_.Advance(absl::Minutes(15));
  EXPECT_THAT(Token(*source), HasSubstr("ended with 4; it is run again 1s after that"));
}

TEST_F(ExecPluginTest, CredentialsThatExpireAtOnceAreUsedForSomeSeconds) {
  const auto source = Source(Counting(clock_.Now() - absl::Hours(1)));
  EXPECT_EQ(Token(*source), "token-1");
  clock_.Advance(absl::Seconds(5) - absl::Milliseconds(1));
  EXPECT_EQ(Token(*source), "token-1");
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Token(*source), "token-2") << "without a growing pause: they work";
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(Token(*source), "token-3");
}

TEST_F(ExecPluginTest, WhoseCredentialsAreRefusedAgainAndAgainWaitsToo) {
  const auto source = Source(Counting(clock_.Now() + absl::Hours(1)));
  EXPECT_EQ(Token(*source), "token-1");
  source->Refused({.token = "token-1"});
  EXPECT_EQ(Token(*source), "token-2") << "at once: the first may have been revoked";
  int made = 2;
  for (const int pause_s : {2, 4, 8, 16, 32, 60, 60}) {
    source->Refused({.token = absl::StrCat("token-", made)});
    source->Refused({.token = absl::StrCat("token-", made)});
    EXPECT_THAT(Token(*source), ::testing::AllOf(HasSubstr("the server refuses what"),
                                                 HasSubstr(absl::FormatDuration(absl::Seconds(pause_s)) + " after that")));
    clock_.Advance(absl::Seconds(pause_s) - absl::Milliseconds(1));
    EXPECT_THAT(Token(*source), HasSubstr("no credentials: "));
    clock_.Advance(absl::Milliseconds(1));
    EXPECT_EQ(Token(*source), absl::StrCat("token-", ++made));
  }
  clock_.Advance(absl::Minutes(1));
  source->Refused({.token = absl::StrCat("token-", made)});
  EXPECT_EQ(Token(*source), absl::StrCat("token-", ++made)) << "those had served for a minute";
}

TEST_F(ExecPluginTest, AFailureIsLoggedOnceAMinuteAndWhenItChanges) {
  base::StartLog("probe", base::LogLevel::kInfo);
  const auto source = Source(Program("echo 'log in first' >&2; exit 3"));
  const auto logged = [&] {
    ::testing::internal::CaptureStderr();
    (void)Token(*source);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(logged(), ::testing::AllOf(HasSubstr("warning probe: credentials: "),
                                         HasSubstr("/login: ended with 3, with stderr: log in first\\n\n")));
  // After 1, 3, 7, 15, 31 and 63 s.
  for (const int pause_s : {1, 2, 4, 8, 16, 32}) {
    clock_.Advance(absl::Seconds(pause_s));
    EXPECT_EQ(logged().empty(), pause_s < 32);
  }
  (void)Program("exit 4");
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(logged(), HasSubstr("/login: ended with 4\n"));
  (void)Program("exit 5");
  clock_.Advance(absl::Minutes(1) - absl::Milliseconds(1));
  EXPECT_EQ(logged(), "");
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(logged(), HasSubstr("/login: ended with 5\n"));
  base::StartLog("probe", base::LogLevel::kWarning);
}

TEST_F(ExecPluginTest, ManyCallersRunItOnce) {
  const auto source = Source(Counting(clock_.Now() + absl::Minutes(15)));
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] { EXPECT_EQ(Token(*source), "token-1"); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(Read("runs"), "x\n");
}

TEST_F(ExecPluginTest, ArgumentsAndEnvironmentReachItWithoutAShell) {
  ExecConfig exec = Program(
      R"(printf '%s|' "$@" > args; printf '%s' "$REGION" > region; printf '%s' "$KUBERNETES_EXEC_INFO" > info; cat > stdin; exit 3)");
  exec.args = {"a b", "$(touch pwned)", "; rm -rf /"};
  exec.env = {{"REGION", "eu west"}};
  exec.provide_cluster_info = true;
  ClientConfig config;
  config.server = "https://paris:6443";
  config.ca.data = "CA";
  config.exec_cluster_config = R"({"audience":"a"})";
  EXPECT_THAT(Token(*Source(exec, config)), HasSubstr("ended with 3"));
  EXPECT_EQ(Read("args"), "a b|$(touch pwned)|; rm -rf /|");
  EXPECT_EQ(Read("region"), "eu west");
  EXPECT_EQ(
      Read("info"),
      R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"certificate-authority-data":"Q0E=","config":{"audience":"a"},"server":"https://paris:6443"},"interactive":false}})");
  EXPECT_EQ(Read("stdin"), "");
  EXPECT_EQ(getenv("KUBERNETES_EXEC_INFO"), nullptr);
}

TEST_F(ExecPluginTest, ExecPluginGetsCaData) {
  ExecConfig exec = Program(R"(printf '%s' "$KUBERNETES_EXEC_INFO" > info; exit 3)");
  exec.provide_cluster_info = true;
  ClientConfig config;
  config.server = "https://paris:6443";
  config.ca.path = folder_.path() + "/ca.crt";
  const absl::Status missing = MakeExecPlugin(exec, config, clock_).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr(config.ca.path)) << "it would speak to a server that it cannot know";
  std::ofstream(config.ca.path) << "CA";
  EXPECT_THAT(Token(*Source(exec, config)), HasSubstr("ended with 3"));
  EXPECT_THAT(Read("info"), HasSubstr(R"("certificate-authority-data":"Q0E=")"));
}

TEST_F(ExecPluginTest, AProgramThatNeedsATerminalIsRefused) {
  ExecConfig exec = Program("exit 3");
  exec.needs_terminal = true;
  const absl::Status status = MakeExecPlugin(exec, {}, clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("interactiveMode"), HasSubstr("there is none")));
}

TEST_F(ExecPluginTest, AMissingProgramSaysHowToGetIt) {
  const auto source = Source({.api_version = kExecVersion, .command = "no-such-login-program", .install_hint = "apt install it"});
  EXPECT_THAT(Token(*source), ::testing::AllOf(HasSubstr("cannot run no-such-login-program"), HasSubstr("apt install it")));
}

TEST_F(ExecPluginTest, WhatItPrintsIsInNoErrorButItsStderrIsLogged) {
  ::testing::internal::CaptureStderr();
  const auto source = Source(Program("echo secret-token; echo 'log in first' >&2"));
  EXPECT_THAT(Token(*source), ::testing::AllOf(HasSubstr("printed no ExecCredential"), Not(HasSubstr("secret-token"))));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::AllOf(HasSubstr("log in first"), Not(HasSubstr("secret-token"))));
}

TEST_F(ExecPluginTest, HoweverItFailsThereAreNoCredentials) {
  const auto error = [&](const ExecConfig& exec, const char* why, absl::Duration timeout = absl::Minutes(1)) {
    const absl::Status status = Source(exec, {}, timeout)->Get({}).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("no credentials: "), HasSubstr(why)));
  };
  error({.api_version = kExecVersion, .command = "no-such-login-program"}, "cannot run");
  error(Program("exit 3"), "ended with 3");
  error(Program("echo hello"), "printed no ExecCredential");
  error(Program("tail -f /dev/null"), "not done within", absl::Milliseconds(200));
  error(Program("yes"), "printed more than");
}

TEST_F(ExecPluginTest, OneThatIsStoppedHasNotFailed) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(Source(Program("tail -f /dev/null"))->Get(stop.get_token()).status()));
}

TEST_F(ExecPluginTest, OtherVersionsAreRefused) {
  EXPECT_EQ(MakeExecPlugin({.api_version = "client.authentication.k8s.io/v1alpha1", .command = "x"}, {}, clock_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

std::string Printed(const std::string& status) {
  return absl::StrCat(R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":)", status, "}");
}

TEST(ExecCredential, TokensAndCertificates) {
  const auto token = ParseExecCredential(Printed(R"({"token":"t","expirationTimestamp":"2026-01-02T03:04:05Z"})"), kExecVersion);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->credentials.token, "t");
  EXPECT_EQ(TimeText(token->expires), "2026-01-02T03:04:05Z");
  const auto certificate = ParseExecCredential(Printed(R"({"clientCertificateData":"C","clientKeyData":"K"})"), kExecVersion);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_EQ(certificate->credentials, (Credentials{"", "C", "K"}));
  EXPECT_EQ(certificate->expires, absl::InfiniteFuture());
}

TEST(ExecCredential, HalfACredentialIsNone) {
  for (const char* status : {"{}", "null", "[]", R"({"clientCertificateData":"C"})", R"({"clientKeyData":"K","token":"t"})",
                             R"({"token":"a\nb"})", R"({"token":"t","expirationTimestamp":"soon"})", R"({"token":7})"}) {
    EXPECT_EQ(ParseExecCredential(Printed(status), kExecVersion).status().code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_FALSE(ParseExecCredential(Printed(R"({"token":"t"})"), "client.authentication.k8s.io/v1beta1").ok());
  EXPECT_FALSE(ParseExecCredential("", kExecVersion).ok());
}

TEST_F(ExecPluginTest, AProgramThatHangsIsKilledWithItsChildren) {
  // A pipe that program and child inherit: it ends when both are gone.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  const std::string command = Program("tail -f /dev/null & wait").command;
  const absl::Status late = RunProgram({.argv = {command}, .timeout = absl::Milliseconds(200)}, {}, report_).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  close(ends[1]);
  pollfd hung_up = {ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&hung_up, 1, 60'000), 1);
  close(ends[0]);
}

TEST_F(ExecPluginTest, OneThatClosesItsOutputAndLivesOnIsKilledToo) {
  const std::string command = Program("exec >/dev/null 2>&1; tail -f /dev/null").command;
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunProgram({.argv = {command}, .timeout = absl::Milliseconds(200)}, {}, report_).status()));
}

TEST_F(ExecPluginTest, StopKillsIt) {
  const std::string command = Program("tail -f /dev/null").command;
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(RunProgram({.argv = {command}, .timeout = absl::Hours(1)}, stop.get_token(), report_).status()));
  stopper.join();
}

TEST_F(ExecPluginTest, EndlessOutputIsCutOff) {
  EXPECT_EQ(RunProgram({.argv = {"yes"}, .timeout = absl::Minutes(1), .max_output_bytes = 100'000}, {}, report_).status().code(),
            absl::StatusCode::kResourceExhausted);
  const std::string command = Program("head -c 200000 /dev/zero >&2; echo done").command;
  const auto output = RunProgram({.argv = {command}, .timeout = absl::Minutes(1)}, {}, report_);
  EXPECT_EQ(report_.errors.size(), 4096u);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "done\n");
}

}  // namespace
}  // namespace fusionllm::kube
