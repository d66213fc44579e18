// Against a broker's service over TLS, as executors of other machines meet it.
#include "services/executor/certificate_renewal.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/program.h"
#include "lib/security/credential_files.h"
#include "lib/security/join_token.h"
#include "lib/security/renewal.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/enrollment.h"
#include "services/broker/executor_sessions.h"
#include "services/credentials.h"
#include "services/executor/broker_channel.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

class CertificateRenewalTest : public ::testing::Test {
 protected:
  CertificateRenewalTest() {
    EXPECT_TRUE(authority_.Save(folder_ / "run").ok());
    EXPECT_TRUE(security::WriteCredentials(folder_ / "run", "broker", *security::IssueCredentials(authority_, "broker")).ok());
    folder_.Write("run/token", *security::MakeJoinToken(*security::MakeJoinSecret(), authority_.certificate_pem()));
    enrollment_ = std::make_unique<Enrollment>(*Enrollment::Load(folder_ / "run", {}, "the job"));
    executor_sessions_ = std::make_unique<ExecutorSessions>(
        ExecutorSessionsOptions{},
        ExecutorSessions::Handlers{.on_joined = [](const v1::Hello&) {},
                                   .on_message = [](const std::string&, uint64_t, const v1::ExecutorMessage&) {},
                                   .on_left = [](const std::string&, uint64_t, const std::string&) {},
                                   .on_enroll = [](const v1::EnrollRequest&) { return absl::UnimplementedError(""); },
                                   .on_renew =
                                       [this](const std::string& pem) {
                                         if (!was_asked_.exchange(true)) asked_.set_value();
                                         return enrollment_->Renew(pem, now_);
                                       }});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", LoadCredentials(folder_ / "run", "broker")->enrolling_server, &port);
    builder.RegisterService(executor_sessions_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~CertificateRenewalTest() override {
    executor_sessions_->Shutdown("the test is over", false);
    server_->Shutdown(std::chrono::system_clock::now());
  }

  void Write(const std::string& name, absl::Duration validity) const {
    ASSERT_TRUE(security::WriteCredentials(Tls(), name, *security::IssueCredentials(authority_, name, {.validity = validity})).ok());
  }
  std::unique_ptr<v1::Broker::Stub> BrokerOf(const std::string& name) const {
    return v1::Broker::NewStub(BrokerChannel(address_, LoadCredentials(Tls(), name)->channel, true));
  }
  // As executor "lab".
  static std::unique_ptr<grpc::ClientReaderWriter<v1::ExecutorMessage, v1::BrokerMessage>> Attend(v1::Broker::Stub& broker,
                                                                                                  grpc::ClientContext& context) {
    auto stream = broker.Attend(&context);
    v1::ExecutorMessage hello;
    hello.mutable_hello()->set_name("lab");
    hello.mutable_hello()->set_protocol_version(kProtocolVersion);
    EXPECT_TRUE(stream->Write(hello));
    v1::BrokerMessage welcome;
    EXPECT_TRUE(stream->Read(&welcome));
    EXPECT_TRUE(welcome.has_welcome()) << welcome.DebugString();
    return stream;
  }
  std::string Tls() const { return folder_ / "joined"; }
  std::string Pem(const std::string& name) const { return base::ReadWholeFile(absl::StrCat(Tls(), "/", name, ".pem")); }

  const base::TempFolder folder_;
  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  absl::Time now_ = absl::Now();
  std::atomic<bool> was_asked_ = false;
  std::promise<void> asked_;  // for a certificate, by one who may have one
  std::unique_ptr<Enrollment> enrollment_;
  std::unique_ptr<ExecutorSessions> executor_sessions_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(CertificateRenewalTest, AnExecutorThatAttendsGetsOneThatEndsLater) {
  // Begun an hour ago by the authority's allowance for clocks: a third of its life is left in 5 minutes.
  Write("lab", absl::Minutes(5));
  const std::string before = Pem("lab");
  const auto broker = BrokerOf("lab");
  grpc::ClientContext context;
  const auto stream = Attend(*broker, context);

  const absl::Status renewed = RenewFromBroker(Tls(), "lab", *broker, now_);
  ASSERT_TRUE(renewed.ok()) << renewed;
  EXPECT_NE(Pem("lab"), before);
  EXPECT_EQ(*security::NeedsRenewal(Pem("lab"), now_), false);
  EXPECT_TRUE(security::ReadCredentials(Tls(), "lab", now_ + absl::Hours(24)).ok());
  const std::string after = Pem("lab");
  ASSERT_TRUE(RenewFromBroker(Tls(), "lab", *broker, now_).ok());
  EXPECT_EQ(Pem("lab"), after) << "not before it is needed";
  context.TryCancel();
}

TEST_F(CertificateRenewalTest, ExecutorProgramRenewsItsCertificateOnceItAttends) {
  Write("lab", absl::Minutes(5));
  const std::string before = Pem("lab");
  daemon::Program executor("fusion-executor",
                           {"--broker", address_, "--name", "lab", "--tls", Tls(), "--renew-certificate", "--metrics-address", "off"});
  ASSERT_EQ(asked_.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready) << "it asked for no certificate";
  // It ends after the call under way, and so with the new file in place.
  executor.Terminate();
  EXPECT_EQ(executor.Wait(), 0);
  EXPECT_NE(Pem("lab"), before);
  EXPECT_TRUE(security::HaveSameKey(Pem("lab"), before));
  EXPECT_EQ(*security::NeedsRenewal(Pem("lab"), now_), false);
}

TEST_F(CertificateRenewalTest, OneThatDoesNotAttendKeepsTheOneItHas) {
  Write("mallory", absl::Minutes(5));
  const std::string before = Pem("mallory");
  const absl::Status status = RenewFromBroker(Tls(), "mallory", *BrokerOf("mallory"), now_);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no executor 'mallory' attends"));
  EXPECT_EQ(Pem("mallory"), before);
}

TEST_F(CertificateRenewalTest, AnEarlierHolderOfTheNameGetsNoneWhileAnotherAttends) {
  Write("lab", absl::Minutes(5));
  const auto earlier = BrokerOf("lab");
  const std::string before = Pem("lab");
  ASSERT_TRUE(security::WriteCredentials(folder_ / "second", "lab", *security::IssueCredentials(authority_, "lab")).ok());
  const auto second = v1::Broker::NewStub(BrokerChannel(address_, LoadCredentials(folder_ / "second", "lab")->channel, true));
  grpc::ClientContext context;
  const auto stream = Attend(*second, context);
  const absl::Status status = RenewFromBroker(Tls(), "lab", *earlier, now_);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("executor 'lab' attends with another key"));
  EXPECT_EQ(Pem("lab"), before);
  context.TryCancel();
}

TEST_F(CertificateRenewalTest, WithTimeLeftNoRenewalIsRequested) {
  Write("lab", absl::Hours(24));
  server_->Shutdown();
  EXPECT_TRUE(RenewFromBroker(Tls(), "lab", *BrokerOf("lab"), now_).ok());
}

}  // namespace
}  // namespace fusionllm::services
