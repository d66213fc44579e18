#include "lib/transport/grpc/relay.h"

#include <grpcpp/grpcpp.h>

#include "gmock/gmock.h"
#include "lib/security/grpc/credentials.h"
#include "lib/transport/grpc/grpc_streams.h"
#include "lib/transport/grpc/relay_endpoint.h"
#include "lib/transport/grpc/relay_names.h"
#include "lib/transport/testing/endpoint_conformance.h"
#include "lib/transport/testing/mailbox.h"

namespace fusionllm::transport::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A server that hosts a relay and nothing else.
class RelayServer {
 public:
  explicit RelayServer(std::shared_ptr<grpc::ServerCredentials> credentials, RelayOptions options = {}) : relay(options) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port_);
    builder.RegisterService(relay.service());
    server_ = builder.BuildAndStart();
  }
  ~RelayServer() {
    relay.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  Relay relay;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class RelayCarrier : public Carrier {
 public:
  std::unique_ptr<Endpoint> Make(EndpointOptions options) override {
    RelayClientOptions relay;
    relay.address = server_.address();
    relay.credentials = grpc::InsecureChannelCredentials();
    auto endpoint = GrpcRelayEndpoint::Create(std::move(options), std::move(relay));
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return *std::move(endpoint);
  }

 private:
  RelayServer server_{grpc::InsecureServerCredentials()};
};

INSTANTIATE_TEST_SUITE_P(Relay, EndpointConformance,
                         ::testing::Values(CarrierCase{"relay", [] { return std::make_unique<RelayCarrier>(); }}));

TEST(Relay, ListsTheEndpointsThatItCanReach) {
  RelayServer server(grpc::InsecureServerCredentials());
  EXPECT_TRUE(server.relay.endpoints().empty());
  EndpointOptions options;
  options.name = "tokyo-0";
  RelayClientOptions relay;
  relay.address = server.address();
  relay.credentials = grpc::InsecureChannelCredentials();
  auto endpoint = GrpcRelayEndpoint::Create(options, relay);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT(server.relay.endpoints(), ElementsAre("tokyo-0"));
}

TEST(Relay, AnAbsentRelayIsAnErrorThatSaysSo) {
  EndpointOptions options;
  options.name = "a";
  RelayClientOptions relay;
  {
    RelayServer gone(grpc::InsecureServerCredentials());
    relay.address = gone.address();
  }
  relay.credentials = grpc::InsecureChannelCredentials();
  relay.connect_timeout = std::chrono::milliseconds(300);
  const absl::Status status = GrpcRelayEndpoint::Create(options, relay).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("relay cannot be reached"));
}

TEST(Relay, MutualTlsRejectsListenerWithForeignName) {
  const auto authority = *security::CertificateAuthority::Create();
  const auto identity = [&](const char* name) { return *security::IssueCredentials(authority, name); };
  RelayServer server(*security::MutualTlsServer(identity("broker")));
  RelayClientOptions relay;
  relay.address = server.address();
  relay.credentials = *security::MutualTlsChannel(identity("mallory"));
  EndpointOptions options;
  options.name = "a";
  const absl::Status status = GrpcRelayEndpoint::Create(options, relay).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mallory"));
  relay.credentials = *security::MutualTlsChannel(identity("a"));
  EXPECT_TRUE(GrpcRelayEndpoint::Create(options, relay).ok());
}

// What mallory may call itself at the relay is checked there; what its handshake says behind the relay, only its peers can check.
TEST(Relay, RejectsCallerWithForeignName) {
  const auto authority = *security::CertificateAuthority::Create();
  const auto channel = [&](const char* name) { return *security::MutualTlsChannel(*security::IssueCredentials(authority, name)); };
  RelayServer server(*security::MutualTlsServer(*security::IssueCredentials(authority, "broker")));
  EndpointOptions options;
  options.name = "b";
  auto b = GrpcRelayEndpoint::Create(options, {.address = server.address(), .credentials = channel("b")});
  ASSERT_TRUE(b.ok()) << b.status();
  for (const char* claimed : {"a", "mallory"}) {
    CallStream call(MakeChannel(server.address(), "broker", channel("mallory"), std::chrono::seconds(10)), kRelayDial,
                    {{kRelayCaller, "mallory"}, {kRelayPeer, "b"}});
    Frame hello;
    hello.type = FrameType::kHello;
    hello.payload.push_back(EncodeHello({.from = claimed, .to = "b", .incarnation = 1, .session = 1}));
    Seal(hello);
    ASSERT_TRUE(call.Write(hello));
    Frame answer;
    if (call.Read(&answer)) {
      EXPECT_STREQ(claimed, "mallory");
      EXPECT_EQ(answer.type, FrameType::kWelcome);
      continue;
    }
    const absl::Status refusal = call.Finish();
    EXPECT_STREQ(claimed, "a");
    EXPECT_EQ(refusal.code(), absl::StatusCode::kUnauthenticated) << refusal;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("mallory"));
  }
}

TEST(Relay, WhereCertificatesAreOptionalTheRelayStillWantsOne) {
  const auto authority = *security::CertificateAuthority::Create();
  const auto broker = *security::IssueCredentials(authority, "broker");
  grpc::SslServerCredentialsOptions optional(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  optional.pem_root_certs = authority.certificate_pem();
  optional.pem_key_cert_pairs.push_back({broker.private_key_pem, broker.certificate_pem});
  RelayServer server(grpc::SslServerCredentials(optional), {.require_certificate = true});
  RelayClientOptions relay;
  relay.address = server.address();
  relay.credentials = *security::ServerTlsChannel(authority.certificate_pem());
  EndpointOptions options;
  options.name = "a";
  const absl::Status status = GrpcRelayEndpoint::Create(options, relay).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no certificate"));
  relay.credentials = *security::MutualTlsChannel(*security::IssueCredentials(authority, "a"));
  EXPECT_TRUE(GrpcRelayEndpoint::Create(options, relay).ok());
}

}  // namespace
}  // namespace fusionllm::transport::testing
