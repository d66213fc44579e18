#include "cli/join/join_run.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/grpc/credentials.h"
#include "lib/security/join_token.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A run whose certificate is in order; who asks has a token of another one, made at `now` and valid for two hours.
class EnrollTest : public ::testing::Test {
 protected:
  EnrollTest() {
    const auto authority = security::CertificateAuthority::Create();
    EXPECT_TRUE(authority.ok()) << authority.status();
    const auto texts = security::IssueCredentials(*authority, "broker");
    EXPECT_TRUE(texts.ok()) << texts.status();
    const auto credentials = security::EnrollingTlsServer(*texts);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~EnrollTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string ErrorWith(absl::Time now) {
    const auto other = security::CertificateAuthority::Create({.validity = absl::Hours(2), .now = now});
    EXPECT_TRUE(other.ok()) << other.status();
    const auto token = security::MakeJoinToken(*security::MakeJoinSecret(), other->certificate_pem());
    EXPECT_TRUE(token.ok()) << token.status();
    const auto enrolled = Enroll({.address = absl::StrCat("127.0.0.1:", port_), .token = *token, .name = "lab"});
    EXPECT_EQ(enrolled.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(enrolled.status().message());
  }

  int port_ = 0;
  grpc::CallbackGenericService service_;  // no call gets so far
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(EnrollTest, ACertificateThatIsNotYetValidIsPutDownToTheClock) {
  EXPECT_THAT(ErrorWith(absl::Now() + absl::Hours(3)),
              AllOf(HasSubstr("the clock of this machine says 2"), HasSubstr("is not valid before 2"), HasSubstr("the clock is behind"),
                    Not(HasSubstr("another authority"))));
}

TEST_F(EnrollTest, ACertificateThatHasExpiredIsNamedAsThat) {
  EXPECT_THAT(ErrorWith(absl::Now() - absl::Hours(72)), AllOf(HasSubstr("expired at 2"), HasSubstr("or the clock is ahead")));
}

TEST_F(EnrollTest, ACertificateOfAnotherRunIsNotPutDownToTheClock) {
  EXPECT_THAT(ErrorWith(absl::Now()), AllOf(HasSubstr("of another authority"), Not(HasSubstr("clock"))));
}

TEST(WhyUnreachableTest, ANameWithoutAnAddressIsSaidPlainly) {
  EXPECT_EQ(WhyUnreachable("lab:7000",
                           "DNS resolution failed for lab:7000: C-ares status is not ARES_SUCCESS qtype=A name=lab is_balancer=0: Domain "
                           "name not found"),
            "cannot reach lab:7000: no address is found for its name (Domain name not found); is it written right, and does this machine "
            "know it?");
  EXPECT_THAT(WhyUnreachable("lab:7000", "connection refused"),
              AllOf(HasSubstr("cannot reach lab:7000: connection refused; does the run wait there")));
}

TEST(ExecutorCommandTest, AnExecutorThatJoinsIsClosedWhateverIsOpened) {
  const JoinOptions nothing{.address = "host:7000", .token = "secret"};
  const JoinOptions all{.address = "host:7000",
                        .token = "secret",
                        .allow_nondeterminism = true,
                        .spare = true,
                        .listen = "lab:0",
                        .advertise = "lab:1",
                        .site = "paris",
                        .site_checkpoints = "/kept",
                        .data = "/corpus",
                        .shared_folder = "/shared",
                        .object_stores = true};
  for (const JoinOptions& options : {nothing, all}) {
    const std::vector<std::string> argv = ExecutorCommand(options, "/bin-folder", "lab", "/tls");
    ASSERT_FALSE(argv.empty());
    EXPECT_EQ(argv[0], "/bin-folder/fusion-executor");
    EXPECT_THAT(argv, AllOf(Contains("--closed"), Contains("--relay"), Contains("--renew-certificate"), Not(Contains("secret"))));
  }
}

TEST(ExecutorCommandTest, NothingIsOpenedThatTheOwnerDidNotName) {
  const std::vector<std::string> closed = ExecutorCommand({.address = "host:7000"}, "/bin-folder", "lab", "/tls");
  EXPECT_THAT(closed, AllOf(Not(Contains("--data")), Not(Contains("--shared-folder")), Not(Contains("--object-stores"))));
  const std::vector<std::string> open = ExecutorCommand(
      {.address = "host:7000", .data = "/corpus", .shared_folder = "/shared", .object_stores = true}, "/bin-folder", "lab", "/tls");
  const auto value_of = [&](const std::string& flag) {
    const auto found = std::find(open.begin(), open.end(), flag);
    return open.end() - found > 1 ? found[1] : "";
  };
  EXPECT_EQ(value_of("--data"), "/corpus");
  EXPECT_EQ(value_of("--shared-folder"), "/shared");
  EXPECT_THAT(open, Contains("--object-stores"));
}

}  // namespace
}  // namespace fusionllm::cli
