// Real TLS handshakes over gRPC with certificates of lib/security: who gets through, and as whom.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"
#include "lib/security/grpc/credentials.h"

namespace fusionllm::security {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kTimeout = std::chrono::seconds(20);

// Answers any unary call by the names of its caller, one in a line: the identity first, then the common names.
class NamingService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    class Reactor final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(const grpc::AuthContext& caller) {
        std::string text;
        for (const grpc::string_ref& name : caller.GetPeerIdentity())
          absl::StrAppend(&text, "identity ", std::string(name.data(), name.size()), "\n");
        for (const grpc::string_ref& name : caller.FindPropertyValues("x509_common_name")) {
          absl::StrAppend(&text, "common_name ", std::string(name.data(), name.size()), "\n");
        }
        const grpc::Slice slice(text);
        answer_ = grpc::ByteBuffer(&slice, 1);
        StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer answer_;
    };
    return new Reactor(*context->auth_context());
  }
};

class Server {
 public:
  explicit Server(std::shared_ptr<grpc::ServerCredentials> credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~Server() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  NamingService service_;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  grpc::Status status;
  std::vector<std::string> identities;
  std::vector<std::string> common_names;
};

// `expected_name`: whom the certificate must be for; empty: the address that is dialled.
Answer Call(const Server& server, const std::shared_ptr<grpc::ChannelCredentials>& credentials, const std::string& expected_name) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no handshake of an earlier channel is used again
  if (!expected_name.empty()) arguments.SetSslTargetNameOverride(expected_name);
  grpc::GenericStub stub(grpc::CreateCustomChannel(server.address(), credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  Answer answer;
  const auto call = stub.PrepareUnaryCall(&context, "/test/WhoAmI", request, &queue);
  call->StartCall();
  call->Finish(&response, &answer.status, &answer);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Slice text;
  if (answer.status.ok() && response.DumpToSingleSlice(&text).ok()) {
    std::string left(reinterpret_cast<const char*>(text.begin()), text.size());
    for (size_t end = left.find('\n'); end != std::string::npos; end = left.find('\n')) {
      const std::string line = left.substr(0, end);
      left.erase(0, end + 1);
      const size_t space = line.find(' ');
      (line.substr(0, space) == "identity" ? answer.identities : answer.common_names).push_back(line.substr(space + 1));
    }
  }
  return answer;
}

struct Identity {
  std::string name;
  IssuedCertificate issued;
};

// With credentials that never change, and with those that are read again when their files do.
enum class Kind { kFixed, kWatched };

class HandshakeTest : public ::testing::TestWithParam<Kind> {
 protected:
  static Identity Issue(const CertificateAuthority& authority, const std::string& name) { return {name, *authority.Issue(name)}; }
  PemCredentials TextsOf(const Identity& own) const {
    return {authority_.certificate_pem(), own.issued.certificate_pem, own.issued.private_key_pem};
  }
  std::string Folder(const Identity& own, const PemCredentials& texts) {
    const std::string folder = temp_ / absl::StrCat("tls", ++folders_);
    EXPECT_TRUE(WriteCredentials(folder, own.name, texts).ok());
    return folder;
  }
  std::shared_ptr<grpc::ServerCredentials> ServerSide(const Identity& own) {
    if (GetParam() == Kind::kFixed) return *MutualTlsServer(TextsOf(own));
    return WatchCredentials(Folder(own, TextsOf(own)), own.name)->server;
  }
  std::shared_ptr<grpc::ServerCredentials> EnrollingSide(const Identity& own) {
    if (GetParam() == Kind::kFixed) return *EnrollingTlsServer(TextsOf(own));
    return WatchCredentials(Folder(own, TextsOf(own)), own.name)->enrolling_server;
  }
  std::shared_ptr<grpc::ChannelCredentials> ClientSide(const Identity& own) {
    if (GetParam() == Kind::kFixed) return *MutualTlsChannel(TextsOf(own));
    return WatchCredentials(Folder(own, TextsOf(own)), own.name)->channel;
  }
  // Whatever the certificate is: without a look at it first.
  std::shared_ptr<grpc::ChannelCredentials> Unchecked(const Identity& own) const {
    return grpc::SslCredentials({authority_.certificate_pem(), own.issued.private_key_pem, own.issued.certificate_pem});
  }
  std::shared_ptr<grpc::ServerCredentials> UncheckedServer(const Identity& own) const {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority_.certificate_pem();
    options.pem_key_cert_pairs.push_back({own.issued.private_key_pem, own.issued.certificate_pem});
    return grpc::SslServerCredentials(options);
  }
  static void ExpectRefused(const Answer& answer) {
    // A handshake that fails leaves the channel without a connection; a deadline would mean that it hangs.
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE) << answer.status.error_message();
    EXPECT_THAT(answer.identities, IsEmpty());
  }

  const CertificateAuthority authority_ = *CertificateAuthority::Create();
  const CertificateAuthority stranger_ = *CertificateAuthority::Create();
  const Identity broker_ = Issue(authority_, "broker");
  const base::TempFolder temp_;
  int folders_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Credentials, HandshakeTest, ::testing::Values(Kind::kFixed, Kind::kWatched),
                         [](const auto& info) { return info.param == Kind::kFixed ? "Fixed" : "Watched"; });

TEST_P(HandshakeTest, MembersOfAJobMeetAndTheServerLearnsTheCallersName) {
  const Server server(ServerSide(broker_));
  for (const std::string name : {"paris-0", "Lab_3.gpu-1"}) {
    const Answer answer = Call(server, ClientSide(Issue(authority_, name)), "broker");
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.identities, Contains(name));
    EXPECT_THAT(answer.common_names, ElementsAre(name));
  }
}

// Documents what certificate_authority.h says about shared names: the identity alone would let anybody in as "localhost".
TEST_P(HandshakeTest, TheIdentityHasNamesThatAllShareButTheCommonNameIsOnesOwn) {
  const Server server(ServerSide(broker_));
  const Answer answer = Call(server, ClientSide(Issue(authority_, "paris-0")), "broker");
  EXPECT_THAT(answer.identities, AllOf(Contains("paris-0"), Contains("localhost"), Contains("127.0.0.1")));
  EXPECT_THAT(answer.common_names, ElementsAre("paris-0"));
}

TEST_P(HandshakeTest, AServerOfThisMachineIsFoundByItsAddress) {
  const Server server(ServerSide(broker_));
  const std::shared_ptr<grpc::ChannelCredentials> client = ClientSide(Issue(authority_, "paris-0"));
  EXPECT_TRUE(Call(server, client, "").status.ok());
  EXPECT_TRUE(Call(server, client, "localhost").status.ok());
}

TEST_P(HandshakeTest, AServerThatIsSomebodyElseIsRefused) {
  const Server server(ServerSide(Issue(authority_, "tokyo-1")));
  const std::shared_ptr<grpc::ChannelCredentials> client = ClientSide(Issue(authority_, "paris-0"));
  ExpectRefused(Call(server, client, "broker"));
  EXPECT_TRUE(Call(server, client, "tokyo-1").status.ok());
}

TEST_P(HandshakeTest, ACallerOfAnotherJobIsRefused) {
  const Server server(ServerSide(broker_));
  ExpectRefused(Call(server, Unchecked(Issue(stranger_, "paris-0")), "broker"));
}

TEST_P(HandshakeTest, AServerOfAnotherJobIsRefused) {
  const Server server(UncheckedServer(Issue(stranger_, "broker")));
  ExpectRefused(Call(server, ClientSide(Issue(authority_, "paris-0")), "broker"));
}

TEST_P(HandshakeTest, ACallerWithoutACertificateIsRefusedUnlessTheServerOnlyAsks) {
  const std::shared_ptr<grpc::ChannelCredentials> anonymous = grpc::SslCredentials({authority_.certificate_pem(), "", ""});
  const Server strict(ServerSide(broker_));
  ExpectRefused(Call(strict, anonymous, "broker"));
  ExpectRefused(Call(strict, grpc::InsecureChannelCredentials(), ""));
  const Server enrolling(EnrollingSide(broker_));
  const Answer answer = Call(enrolling, anonymous, "broker");
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.identities, IsEmpty());
  ExpectRefused(Call(enrolling, Unchecked(Issue(stranger_, "paris-0")), "broker"));
}

TEST_P(HandshakeTest, ExpiredCertificatesAreRefusedOnEitherSide) {
  const IssueOptions past{.validity = absl::Seconds(1), .now = absl::Now() - absl::Minutes(1)};
  const Server server(ServerSide(broker_));
  ExpectRefused(Call(server, Unchecked({"paris-0", *authority_.Issue("paris-0", past)}), "broker"));
  const Server old(UncheckedServer({"broker", *authority_.Issue("broker", past)}));
  ExpectRefused(Call(old, ClientSide(Issue(authority_, "paris-0")), "broker"));
}

TEST_P(HandshakeTest, ACertificateCannotIssueOthers) {
  const Identity member = Issue(authority_, "mallory");
  EXPECT_FALSE(CertificateAuthority::FromPem(member.issued.certificate_pem, member.issued.private_key_pem).ok());
}

// What is replaced on the disk. Another name stands for another end: both are seen from outside.
class ReplacedFilesTest : public HandshakeTest {
 protected:
  static constexpr absl::Duration kRefresh = absl::Seconds(1);
  void Replace(const std::string& folder, const std::string& name, const Identity& by) const {
    ASSERT_TRUE(WriteCredentials(folder, name, TextsOf(by)).ok());
  }
};
INSTANTIATE_TEST_SUITE_P(Credentials, ReplacedFilesTest, ::testing::Values(Kind::kWatched), [](const auto&) { return "Watched"; });

TEST_P(ReplacedFilesTest, AServerShowsTheNewCertificateToWhoComesNext) {
  const std::string folder = Folder(broker_, TextsOf(broker_));
  const Server server(WatchCredentials(folder, "broker", kRefresh)->server);
  const std::shared_ptr<grpc::ChannelCredentials> client = ClientSide(Issue(authority_, "paris-0"));
  ExpectRefused(Call(server, client, "renewed"));
  Replace(folder, "broker", Issue(authority_, "renewed"));
  const auto give_up = std::chrono::steady_clock::now() + kTimeout;
  while (!Call(server, client, "renewed").status.ok()) ASSERT_LT(std::chrono::steady_clock::now(), give_up);
  ExpectRefused(Call(server, client, "broker"));
}

TEST_P(ReplacedFilesTest, AClientShowsTheNewCertificateFromItsNextConnectionOn) {
  const Identity paris = Issue(authority_, "paris-0");
  const std::string folder = Folder(paris, TextsOf(paris));
  const std::shared_ptr<grpc::ChannelCredentials> client = WatchCredentials(folder, "paris-0", kRefresh)->channel;
  const Server server(ServerSide(broker_));
  EXPECT_THAT(Call(server, client, "broker").common_names, ElementsAre("paris-0"));
  Replace(folder, "paris-0", Issue(authority_, "renewed"));
  const auto give_up = std::chrono::steady_clock::now() + kTimeout;
  std::vector<std::string> seen;
  while (seen != std::vector<std::string>{"renewed"}) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    seen = Call(server, client, "broker").common_names;
  }
}

// Half a file never is: they are replaced whole. But a folder may be gone for a while, as when it is mounted again.
TEST_P(ReplacedFilesTest, WhileTheFilesAreGoneTheLastOnesAreUsed) {
  const std::string folder = Folder(broker_, TextsOf(broker_));
  const Server server(WatchCredentials(folder, "broker", kRefresh)->server);
  std::filesystem::remove_all(folder);
  const std::shared_ptr<grpc::ChannelCredentials> client = ClientSide(Issue(authority_, "paris-0"));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < until) {
    const Answer answer = Call(server, client, "broker");
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
}

}  // namespace
}  // namespace fusionllm::security
