// Who is let in: gRPC endpoints under mutual TLS.
#include <grpcpp/grpcpp.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/grpc/credentials.h"
#include "lib/transport/grpc/grpc_endpoint.h"
#include "lib/transport/testing/mailbox.h"

namespace fusionllm::transport::testing {
namespace {

using ::testing::HasSubstr;

class GrpcSecurityTest : public ::testing::Test {
 protected:
  static security::PemCredentials IdentityOf(const security::CertificateAuthority& authority, const char* name) {
    return *security::IssueCredentials(authority, name);
  }
  // `name` is what the endpoint calls itself, whatever its credentials say.
  static std::unique_ptr<GrpcEndpoint> Make(const char* name, std::shared_ptr<grpc::ServerCredentials> server,
                                            std::shared_ptr<grpc::ChannelCredentials> channel) {
    EndpointOptions options;
    options.name = name;
    options.reconnect_timeout = std::chrono::milliseconds(500);
    auto endpoint = GrpcEndpoint::Create(options, {.server_credentials = std::move(server), .channel_credentials = std::move(channel)});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return *std::move(endpoint);
  }
  static std::unique_ptr<GrpcEndpoint> Make(const char* name, const security::PemCredentials& identity) {
    return Make(name, *security::MutualTlsServer(identity), *security::MutualTlsChannel(identity));
  }
  // The status with which `from` fails to send to `to`; OK when the message arrives.
  static absl::Status TryToSend(GrpcEndpoint& from, GrpcEndpoint& to) {
    Mailbox sender, receiver;
    receiver.Listen(to);
    sender.WatchFailures(from);
    from.SetPeerAddress(to.name(), "127.0.0.1:" + std::to_string(to.port()));
    EXPECT_TRUE(from.Send(to.name(), {}, Payload::Of(std::string("secret"))).ok());
    const auto deadline = std::chrono::steady_clock::now() + Mailbox::kTimeout;
    while (sender.failures().empty() && receiver.messages().empty() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_TRUE(sender.failures().empty() || receiver.messages().empty());
    return sender.failures().empty() ? absl::OkStatus() : sender.failures()[0].second;
  }

  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  const std::unique_ptr<GrpcEndpoint> b_ = Make("b", IdentityOf(authority_, "b"));
};

TEST_F(GrpcSecurityTest, AMemberOfTheJobIsLetIn) {
  auto a = Make("a", IdentityOf(authority_, "a"));
  EXPECT_TRUE(TryToSend(*a, *b_).ok());
}

TEST_F(GrpcSecurityTest, ACertificateOfAnotherAuthorityIsRefused) {
  const security::PemCredentials stranger = IdentityOf(*security::CertificateAuthority::Create(), "a");
  EXPECT_EQ(TryToSend(*Make("a", stranger), *b_).code(), absl::StatusCode::kUnavailable);
  // Also when it trusts the right server.
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority_.certificate_pem();
  options.pem_cert_chain = stranger.certificate_pem;
  options.pem_private_key = stranger.private_key_pem;
  EXPECT_EQ(TryToSend(*Make("a", *security::MutualTlsServer(stranger), grpc::SslCredentials(options)), *b_).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(GrpcSecurityTest, NoCertificateIsNoEntry) {
  auto a = Make("a", grpc::InsecureServerCredentials(), *security::ServerTlsChannel(authority_.certificate_pem()));
  EXPECT_EQ(TryToSend(*a, *b_).code(), absl::StatusCode::kUnavailable);
  auto plain = Make("a", grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(TryToSend(*plain, *b_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcSecurityTest, AMemberCannotSpeakUnderAnothersName) {
  auto impostor = Make("a", IdentityOf(authority_, "mallory"));
  const absl::Status status = TryToSend(*impostor, *b_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its certificate is for mallory"));
}

TEST_F(GrpcSecurityTest, AMemberCannotListenUnderAnothersName) {
  auto a = Make("a", IdentityOf(authority_, "a"));
  auto impostor = Make("c", IdentityOf(authority_, "mallory"));
  EXPECT_EQ(TryToSend(*a, *impostor).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcSecurityTest, AnExpiredOrMismatchedIdentityIsReportedBeforeItIsUsed) {
  const security::PemCredentials expired =
      *security::IssueCredentials(authority_, "a", {.validity = absl::Seconds(1), .now = absl::Now() - absl::Minutes(1)});
  EXPECT_THAT(std::string(security::MutualTlsServer(expired).status().message()), HasSubstr("expired"));
  EXPECT_THAT(std::string(security::MutualTlsChannel(expired).status().message()), HasSubstr("expired"));
  security::PemCredentials mixed = IdentityOf(authority_, "a");
  mixed.private_key_pem = IdentityOf(authority_, "b").private_key_pem;
  EXPECT_THAT(std::string(security::MutualTlsServer(mixed).status().message()), HasSubstr("key"));
}

}  // namespace
}  // namespace fusionllm::transport::testing
