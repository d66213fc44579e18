// What a join token buys at a broker, over real TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/testing/executor_sessions_fixture.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EnrollTest : public ExecutorSessionsTest {
 protected:
  grpc::Status Enroll(const std::string& token, uint32_t version, v1::EnrollResponse& response) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("broker");
    const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(address_, WithoutCertificate(), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kSessionTestTimeout);
    v1::EnrollRequest request;
    request.set_protocol_version(version);
    request.set_token(token);
    request.set_name("lab-3");
    request.set_public_key_pem(key_.public_key_pem);
    return stub->Enroll(&context, request, &response);
  }
  const security::PemKeyPair key_ = *security::GenerateKeyPair();
};

TEST_F(EnrollTest, TheTokenBuysWhatItTakesToAttend) {
  v1::EnrollResponse response;
  const grpc::Status status = Enroll(token_, kProtocolVersion, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  Peer peer(address_, grpc::SslCredentials({.pem_root_certs = response.ca_certificate_pem(),
                                            .pem_private_key = key_.private_key_pem,
                                            .pem_cert_chain = response.certificate_pem()}));
  ASSERT_TRUE(peer.Say(HelloOf("lab-3")));
  EXPECT_TRUE(peer.Hear().has_welcome());
}

TEST_F(EnrollTest, AWrongTokenBuysNothing) {
  const std::string wrong = *security::MakeJoinToken(*security::MakeJoinSecret(), authority_.certificate_pem());
  v1::EnrollResponse response;
  const grpc::Status status = Enroll(wrong, kProtocolVersion, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), Not(HasSubstr(wrong)));
  EXPECT_EQ(response.certificate_pem(), "");
  EXPECT_EQ(Enroll("", kProtocolVersion, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(EnrollTest, AnotherProtocolVersionIsRefusedNamingBothWhateverTheToken) {
  v1::EnrollResponse response;
  for (const std::string& token : {token_, std::string("nonsense")}) {
    const grpc::Status status = Enroll(token, kProtocolVersion + 1, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr(absl::StrCat("version ", kProtocolVersion + 1)), HasSubstr(absl::StrCat("speaks ", kProtocolVersion))));
    EXPECT_EQ(response.certificate_pem(), "");
  }
}

}  // namespace
}  // namespace fusionllm::services
