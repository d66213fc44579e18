// Over real TLS: whose calls the broker's server reads. Its messages are limited to less than the calls bring, so that a call whose message
// was looked at first ends as too large.
#include "services/broker/auth_interceptor.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "proto/fusionllm/v1/checkpoint.grpc.pb.h"
#include "services/credentials.h"
#include "services/join_metadata.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

constexpr int kMessageBytes = 1024;
constexpr char kToken[] = "the token";

class Broker final : public v1::Broker::Service {
 public:
  grpc::Status Enroll(grpc::ServerContext* context, const v1::EnrollRequest*, v1::EnrollResponse*) override {
    saw_token = context->client_metadata().contains(kJoinTokenMetadata);
    return grpc::Status::OK;
  }
  bool saw_token = false;
};

class AuthInterceptorTest : public ::testing::Test {
 protected:
  AuthInterceptorTest() {
    EXPECT_TRUE(authority_.Save(folder_ / "tls").ok());
    for (const char* name : {"broker", "lab"})
      EXPECT_TRUE(security::WriteCredentials(folder_ / "tls", name, *security::IssueCredentials(authority_, name)).ok());
  }
  ~AuthInterceptorTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void Serve(AuthInterceptor::TokenCheck check) {
    const auto credentials = LoadCredentials(folder_ / "tls", "broker")->enrolling_server;
    credentials->SetAuthMetadataProcessor(std::make_shared<AuthInterceptor>(std::move(check)));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(&broker_);
    builder.RegisterService(&exchange_);
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void ServeThoseWithTheToken() {
    Serve([](const std::string& token) {
      return token == kToken ? absl::OkStatus() : absl::PermissionDeniedError("the join token is not that of this run");
    });
  }

  std::shared_ptr<grpc::Channel> Channel(const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetSslTargetNameOverride("broker");
    return grpc::CreateCustomChannel(address_, credentials, arguments);
  }
  std::shared_ptr<grpc::ChannelCredentials> Outsider() const {
    return grpc::SslCredentials({.pem_root_certs = authority_.certificate_pem()});
  }
  std::shared_ptr<grpc::ChannelCredentials> Executor() const { return LoadCredentials(folder_ / "tls", "lab")->channel; }

  grpc::Status Enroll(const std::string& token, size_t bytes = 0) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata(kJoinTokenMetadata, token);
    v1::EnrollRequest request;
    request.set_name(std::string(bytes, 'x'));
    v1::EnrollResponse response;
    return v1::Broker::NewStub(Channel(Outsider()))->Enroll(&context, request, &response);
  }
  grpc::Status FetchTensors(const std::shared_ptr<grpc::ChannelCredentials>& credentials, size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.AddMetadata(kJoinTokenMetadata, kToken);
    v1::FetchTensorsRequest request;
    request.add_names(std::string(bytes, 'x'));
    const auto reader = v1::CheckpointExchange::NewStub(Channel(credentials))->FetchTensors(&context, request);
    v1::TensorPiece piece;
    while (reader->Read(&piece)) {
    }
    return reader->Finish();
  }

  base::TempFolder folder_;
  security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  Broker broker_;
  v1::CheckpointExchange::Service exchange_;  // answers what reaches it with UNIMPLEMENTED
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(AuthInterceptorTest, TheTokenLetsEnrollAndIsNotSeenByTheHandler) {
  ServeThoseWithTheToken();
  const grpc::Status status = Enroll(kToken);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(broker_.saw_token);
}

TEST_F(AuthInterceptorTest, AMessageWithoutTheTokenIsNotRead) {
  ServeThoseWithTheToken();
  const grpc::Status wrong = Enroll("another token", 2 * kMessageBytes);
  EXPECT_EQ(wrong.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(wrong.error_message(), HasSubstr("not that of this run"));
  const grpc::Status none = Enroll("", 2 * kMessageBytes);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(none.error_message(), HasSubstr("same version"));
  EXPECT_EQ(Enroll(kToken, 2 * kMessageBytes).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << "who is let in is read";
}

TEST_F(AuthInterceptorTest, WithoutACertificateTheTokenOpensNothingButEnroll) {
  ServeThoseWithTheToken();
  const grpc::Status status = FetchTensors(Outsider(), 2 * kMessageBytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("WrongCertificate"));
}

TEST_F(AuthInterceptorTest, WhoHasACertificatePasses) {
  ServeThoseWithTheToken();
  EXPECT_EQ(FetchTensors(Executor(), 1).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AuthInterceptorTest, ARunClosedToNewExecutorsSaysSo) {
  Serve(nullptr);
  const grpc::Status status = Enroll(kToken, 2 * kMessageBytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--listen"));
}

}  // namespace
}  // namespace fusionllm::services
