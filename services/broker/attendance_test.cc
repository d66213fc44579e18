// Who may attend a run, over real TLS: streams of executors with the right and the wrong certificate, version, name and token.
#include "services/broker/attendance.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "lib/security/join_token.h"
#include "services/broker/enrollment.h"
#include "services/credentials.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kPatience = std::chrono::seconds(60);

v1::ExecutorMessage HelloOf(const std::string& name, uint32_t version = kProtocolVersion, uint64_t incarnation = 2) {
  v1::ExecutorMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_name(name);
  hello.set_protocol_version(version);
  hello.set_incarnation(incarnation);
  hello.set_build_version("9.9.9");
  return message;
}

// A stream to the broker, as an executor has one.
class Peer {
 public:
  Peer(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no handshake of another peer is used again
    arguments.SetSslTargetNameOverride("broker");
    stub_ = v1::Broker::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stream_ = stub_->Attend(&context_);
  }
  ~Peer() {
    context_.TryCancel();
    if (!finished_) (void)stream_->Finish();
  }
  bool Say(const v1::ExecutorMessage& message) { return stream_->Write(message); }
  // An empty message at the end of the stream.
  v1::BrokerMessage Hear() {
    v1::BrokerMessage message;
    if (!stream_->Read(&message)) message.Clear();
    return message;
  }
  grpc::Status End() {
    finished_ = true;
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecutorMessage, v1::BrokerMessage>> stream_;
  bool finished_ = false;
};

class AttendanceTest : public ::testing::Test {
 protected:
  explicit AttendanceTest(AttendanceOptions options = {}) {
    EXPECT_TRUE(authority_.Save(Tls()).ok());
    EXPECT_TRUE(security::WriteCredentials(Tls(), "broker", *security::IssueCredentials(authority_, "broker")).ok());
    folder_.Write("tls/token", token_);
    enrollment_ = std::make_unique<Enrollment>(*Enrollment::Load(Tls(), {}, "the job"));
    options.build_version = "1.2.3";
    if (options.welcome.job_document().empty()) options.welcome.set_job_document("the job");
    attendance_ = std::make_unique<Attendance>(
        options, Attendance::Handlers{.on_joined = [this](const v1::Hello& hello) { Note(absl::StrCat("joined ", hello.name())); },
                                      .on_message =
                                          [this](const std::string& name, uint64_t incarnation, const v1::ExecutorMessage& message) {
                                            Note(absl::StrCat(name, " said ", message.sequence()));
                                            attendance_->Acknowledge(name, incarnation, message.sequence());
                                          },
                                      .on_left =
                                          [this](const std::string& name, uint64_t incarnation, const std::string& why) {
                                            Leaving();
                                            Note(absl::StrCat("left ", name, " ", incarnation, ": ", why));
                                          },
                                      .on_enroll =
                                          [this](const v1::EnrollRequest& request) {
                                            return enrollment_->Enroll(
                                                request, [](const std::string&) { return false; }, absl::Now());
                                          }});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", LoadCredentials(Tls(), "broker")->enrolling_server, &port);
    builder.RegisterService(attendance_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~AttendanceTest() override {
    attendance_->Shutdown("the test is over", false);
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string Tls() const { return folder_ / "tls"; }
  void Note(std::string what) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(what));
    news_.notify_all();
  }
  // What happens first while on_left is called.
  void SetLeaving(std::function<void()> leaving) {
    const std::lock_guard lock(leaving_mutex_);
    leaving_ = std::move(leaving);
  }
  void Leaving() {
    const std::lock_guard lock(leaving_mutex_);
    if (leaving_) leaving_();
  }
  std::vector<std::string> Notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  void AwaitNotes(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(news_.wait_for(lock, kPatience, [&] { return notes_.size() >= count; }));
  }

  // Of a process that the authority knows as `name` and that trusts this job's authority.
  std::shared_ptr<grpc::ChannelCredentials> CertifiedAs(const std::string& name, const security::CertificateAuthority& by) const {
    const security::IssuedCertificate own = *by.Issue(name);
    return grpc::SslCredentials(
        {.pem_root_certs = authority_.certificate_pem(), .pem_private_key = own.private_key_pem, .pem_cert_chain = own.certificate_pem});
  }
  std::shared_ptr<grpc::ChannelCredentials> CertifiedAs(const std::string& name) const { return CertifiedAs(name, authority_); }
  std::shared_ptr<grpc::ChannelCredentials> WithoutCertificate() const {
    return grpc::SslCredentials({.pem_root_certs = authority_.certificate_pem(), .pem_private_key = "", .pem_cert_chain = ""});
  }

  struct Turned {
    std::string reason, message;
    grpc::Status status;
  };
  // What a peer hears that opens with `first` and is turned away.
  Turned TurnedAway(const std::shared_ptr<grpc::ChannelCredentials>& credentials, const v1::ExecutorMessage& first) {
    Peer peer(address_, credentials);
    peer.Say(first);
    const v1::BrokerMessage answer = peer.Hear();
    EXPECT_FALSE(answer.has_welcome());
    return {answer.refusal().reason(), answer.refusal().message(), peer.End()};
  }

  base::TempFolder folder_;
  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  const std::string token_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority_.certificate_pem());
  std::unique_ptr<Enrollment> enrollment_;
  std::unique_ptr<Attendance> attendance_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::string> notes_;
  std::mutex leaving_mutex_;
  std::function<void()> leaving_;
};

TEST_F(AttendanceTest, AMemberOfTheJobIsWelcomedHeardAndSeenOff) {
  {
    Peer peer(address_, CertifiedAs("a"));
    ASSERT_TRUE(peer.Say(HelloOf("a")));
    const v1::BrokerMessage welcome = peer.Hear();
    EXPECT_EQ(welcome.welcome().job_document(), "the job");
    EXPECT_TRUE(attendance_->IsAttending("a"));
    EXPECT_TRUE(attendance_->IsAttending("A")) << "names are compared as certificates are";
    v1::ExecutorMessage message;
    message.set_sequence(7);
    message.mutable_leaving();
    ASSERT_TRUE(peer.Say(message));
    EXPECT_EQ(peer.Hear().ack().sequence(), 7);
    EXPECT_TRUE(peer.End().ok());
  }
  AwaitNotes(3);
  EXPECT_THAT(Notes(), ElementsAre("joined a", "a said 7", "left a 2: it was told to end"));
  EXPECT_FALSE(attendance_->IsAttending("a"));
  EXPECT_FALSE(attendance_->Send("a", {}));
}

TEST_F(AttendanceTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  for (const uint32_t version : {kProtocolVersion + 1, uint32_t{0}}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf("a", version));
    EXPECT_EQ(turned.reason, "IncompatibleProtocol");
    EXPECT_THAT(turned.message, AllOf(HasSubstr(absl::StrCat("protocol version ", version, " (build 9.9.9)")),
                                      HasSubstr(absl::StrCat("this broker ", kProtocolVersion, " (build 1.2.3)"))));
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(turned.status.error_message(), turned.message);
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttendanceTest, ACertificateOfAnotherJobsAuthorityGetsNoStream) {
  const auto other = *security::CertificateAuthority::Create();
  const Turned turned = TurnedAway(CertifiedAs("a", other), HelloOf("a"));
  EXPECT_EQ(turned.reason, "");
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAVAILABLE) << "TLS itself refuses: " << turned.status.error_message();
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttendanceTest, APeerWithoutACertificateMayEnrollButNotAttend) {
  const Turned turned = TurnedAway(WithoutCertificate(), HelloOf("a"));
  EXPECT_EQ(turned.reason, "WrongCertificate");
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttendanceTest, AnOutsiderIsRefusedBeforeItHasSaidAnything) {
  Peer peer(address_, WithoutCertificate());
  EXPECT_EQ(peer.Hear().refusal().reason(), "WrongCertificate");
  EXPECT_EQ(peer.End().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

class ShortPatienceTest : public AttendanceTest {
 protected:
  ShortPatienceTest() : AttendanceTest({.hello_patience = std::chrono::seconds(1)}) {}
};

TEST_F(ShortPatienceTest, AStreamThatBringsNoHelloIsEnded) {
  Peer silent(address_, CertifiedAs("a"));
  EXPECT_FALSE(silent.Hear().has_welcome());
  EXPECT_EQ(silent.End().error_code(), grpc::StatusCode::CANCELLED) << "by the broker, long before this peer's own deadline";
}

TEST_F(ShortPatienceTest, AStreamThatHasBroughtItStays) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  ASSERT_TRUE(peer.Hear().has_welcome());
  // The patience with another stream, begun later, runs out; this one's would have before.
  Peer silent(address_, CertifiedAs("b"));
  EXPECT_FALSE(silent.Hear().has_welcome());
  v1::ExecutorMessage message;
  message.set_sequence(7);
  ASSERT_TRUE(peer.Say(message));
  EXPECT_EQ(peer.Hear().ack().sequence(), 7);
}

TEST_F(AttendanceTest, ANameThatIsNotInTheCertificateIsRefused) {
  for (const char* name : {"b", "localhost", "127.0.0.1", "A", "a "}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf(name));
    EXPECT_EQ(turned.reason, "WrongCertificate") << name;
    EXPECT_THAT(turned.message, HasSubstr(absl::StrCat("'", name, "'")));
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << name;
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttendanceTest, WhoDoesNotIntroduceThemselvesIsRefused) {
  v1::ExecutorMessage no_hello;
  no_hello.mutable_step()->set_step(1);
  for (const v1::ExecutorMessage& first : {no_hello, v1::ExecutorMessage(), HelloOf(""), HelloOf(std::string(254, 'x'))}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), first);
    EXPECT_EQ(turned.reason, "MalformedHandshake");
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

// The others are told to dial what it says.
TEST_F(AttendanceTest, AnAddressOfAHelloIsOneOfItsSenderThatPeersCanDial) {
  std::vector<std::string> addresses = {absl::StrCat(std::string(600, 'x'), ":1")};
  for (const char* address : {"unix:/run/docker.sock", "relay:b", "lab:0", "dns:///lab:7001"}) addresses.emplace_back(address);
  for (const bool of_its_site : {false, true}) {
    for (const std::string& address : addresses) {
      v1::ExecutorMessage hello = HelloOf("a");
      (of_its_site ? hello.mutable_hello()->mutable_site_address() : hello.mutable_hello()->mutable_data_address())->assign(address);
      const Turned turned = TurnedAway(CertifiedAs("a"), hello);
      EXPECT_EQ(turned.reason, "MalformedHandshake") << address;
      EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << address;
    }
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttendanceTest, AFieldOfAHelloThatIsTooLongIsRefused) {
  const std::string text(1025, 'x');
  for (int field = 0; field < 3; ++field) {
    v1::ExecutorMessage hello = HelloOf("a");
    if (field == 0) hello.mutable_hello()->set_build_version(text);
    if (field == 1) hello.mutable_hello()->set_backend(text);
    if (field == 2) hello.mutable_hello()->set_device_description(text);
    const Turned turned = TurnedAway(CertifiedAs("a"), hello);
    EXPECT_EQ(turned.reason, "MalformedHandshake") << field;
    EXPECT_THAT(turned.message, HasSubstr("1 KiB")) << field;
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

class UncertifiedAttendanceTest : public AttendanceTest {
 protected:
  UncertifiedAttendanceTest() : AttendanceTest({.require_certificate = false}) {}
};

TEST_F(UncertifiedAttendanceTest, NamesThatNoCertificateHasAreRefused) {
  for (const std::string& name :
       {std::string("../../x"), std::string("a b"), std::string("a\nb"), std::string(64, 'x'), std::string("ca")}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf(name));
    EXPECT_EQ(turned.reason, "MalformedHandshake");
    EXPECT_THAT(turned.message, HasSubstr(absl::StrCat("the name '", absl::CHexEscape(name), "'")));
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_THAT(Notes(), IsEmpty());
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("somebody-else")));
  EXPECT_TRUE(peer.Hear().has_welcome());
}

TEST_F(AttendanceTest, ASiteIsANameOrThatOfItsMachine) {
  for (const std::string& site : {std::string("a/b"), std::string("..\n"), std::string(64, 'x'), std::string("-x")}) {
    v1::ExecutorMessage hello = HelloOf("a");
    hello.mutable_hello()->set_site(site);
    const Turned turned = TurnedAway(CertifiedAs("a"), hello);
    EXPECT_EQ(turned.reason, "MalformedHandshake");
    EXPECT_THAT(turned.message, AllOf(HasSubstr("--site"), HasSubstr("1 to 63 letters")));
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_THAT(Notes(), IsEmpty());
  const std::string machine = "_lab";  // a name that a process may have and a site may not
  for (const auto& [name, site] : {std::pair<std::string, std::string>{"a", "Paris_2.lab"}, {machine, machine}}) {
    Peer peer(address_, CertifiedAs(name));
    v1::ExecutorMessage hello = HelloOf(name);
    hello.mutable_hello()->set_site(site);
    ASSERT_TRUE(peer.Say(hello));
    EXPECT_TRUE(peer.Hear().has_welcome()) << site;
  }
}

TEST_F(AttendanceTest, AnOlderProcessWaitsWhileANewerOneAttends) {
  Peer newer(address_, CertifiedAs("a"));
  ASSERT_TRUE(newer.Say(HelloOf("a")));
  ASSERT_TRUE(newer.Hear().has_welcome());
  const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf("a", kProtocolVersion, /*incarnation=*/1));
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAVAILABLE) << "it may try again";
  EXPECT_THAT(turned.status.error_message(), HasSubstr("a newer process attends as executor a"));
  EXPECT_THAT(Notes(), ElementsAre("joined a"));
  v1::BrokerMessage order;
  order.mutable_calibrate();
  EXPECT_TRUE(attendance_->Send("a", order));
  EXPECT_TRUE(newer.Hear().has_calibrate());
}

class AttemptTest : public AttendanceTest {
 protected:
  AttemptTest() : AttendanceTest({.attempt = 1}) {}
  static v1::ExecutorMessage Hello(std::optional<int64_t> attempt, uint64_t incarnation = 2) {
    v1::ExecutorMessage message = HelloOf("a", kProtocolVersion, incarnation);
    if (attempt.has_value()) message.mutable_hello()->set_attempt(*attempt);
    return message;
  }
};

TEST_F(AttemptTest, AnExecutorOfAnEarlierAttemptIsSentAwayForGoodWhateverItsClock) {
  Peer own(address_, CertifiedAs("a"));
  ASSERT_TRUE(own.Say(Hello(1)));
  ASSERT_TRUE(own.Hear().has_welcome());
  const Turned turned = TurnedAway(CertifiedAs("a"), Hello(0, /*incarnation=*/99));
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(turned.reason, kSupersededAttempt);
  EXPECT_THAT(turned.message, HasSubstr("executor a is of attempt 0 of the job, this broker leads attempt 1"));
  EXPECT_THAT(Notes(), ElementsAre("joined a")) << "the one of this attempt stays";
}

TEST_F(AttemptTest, AnExecutorOfALaterAttemptIsToComeAgain) {
  const Turned turned = TurnedAway(CertifiedAs("a"), Hello(2));
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAVAILABLE) << "its broker will be at the same address";
  EXPECT_EQ(turned.reason, "");
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(AttemptTest, AnExecutorThatDoesNotKnowItsAttemptIsTaken) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(Hello(std::nullopt)));
  EXPECT_TRUE(peer.Hear().has_welcome());
}

TEST_F(AttendanceTest, ABrokerThatDoesNotKnowItsAttemptTakesExecutorsOfAny) {
  Peer peer(address_, CertifiedAs("a"));
  v1::ExecutorMessage hello = HelloOf("a");
  hello.mutable_hello()->set_attempt(7);
  ASSERT_TRUE(peer.Say(hello));
  EXPECT_TRUE(peer.Hear().has_welcome());
}

TEST_F(AttendanceTest, ASecondStreamOfAnExecutorTakesThePlaceOfTheFirst) {
  Peer first(address_, CertifiedAs("a"));
  ASSERT_TRUE(first.Say(HelloOf("a")));
  ASSERT_TRUE(first.Hear().has_welcome());
  Peer second(address_, CertifiedAs("a"));
  ASSERT_TRUE(second.Say(HelloOf("a")));
  ASSERT_TRUE(second.Hear().has_welcome());
  v1::BrokerMessage order;
  order.mutable_calibrate();
  EXPECT_TRUE(attendance_->Send("a", order));
  EXPECT_TRUE(second.Hear().has_calibrate());
  v1::ExecutorMessage message;
  message.set_sequence(7);
  first.Say(message);
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(attendance_->IsAttending("a"));
  EXPECT_THAT(Notes(), ElementsAre("joined a", "joined a")) << "neither its words nor its end are those of the executor";
}

TEST_F(AttendanceTest, AnAcknowledgementIsForTheProcessThatReported) {
  Peer former(address_, CertifiedAs("a"));
  ASSERT_TRUE(former.Say(HelloOf("a", kProtocolVersion, 1)));
  ASSERT_TRUE(former.Hear().has_welcome());
  Peer restarted(address_, CertifiedAs("a"));
  ASSERT_TRUE(restarted.Say(HelloOf("a", kProtocolVersion, 2)));
  ASSERT_TRUE(restarted.Hear().has_welcome());
  attendance_->Acknowledge("a", 1, 500);  // what the former said has been recorded only now
  attendance_->Acknowledge("a", 2, 3);
  EXPECT_EQ(restarted.Hear().ack().sequence(), 3) << "it would discard its own reports up to 500";
}

class LongWelcomeTest : public AttendanceTest {
 protected:
  LongWelcomeTest() : AttendanceTest(WithALongWelcome()) {}
  static AttendanceOptions WithALongWelcome() {
    AttendanceOptions options;
    options.welcome.set_job_document(std::string(3 << 20, 'x'));  // more than the connection takes from who does not read
    return options;
  }
};

TEST_F(LongWelcomeTest, WhoReadsSlowlyFindsOneAcknowledgementForAll) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  AwaitNotes(1);
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) attendance_->Acknowledge("a", 2, sequence);
  ASSERT_TRUE(peer.Hear().has_welcome());
  EXPECT_EQ(peer.Hear().ack().sequence(), 100);
}

TEST_F(AttendanceTest, WhoComesBackJoinsAfterItHasLeft) {
  auto first = std::make_unique<Peer>(address_, CertifiedAs("a"));
  ASSERT_TRUE(first->Say(HelloOf("a")));
  ASSERT_TRUE(first->Hear().has_welcome());
  Peer second(address_, CertifiedAs("a"));
  SetLeaving([&, done = false]() mutable {
    if (std::exchange(done, true)) return;
    EXPECT_TRUE(second.Say(HelloOf("a")));
    std::unique_lock lock(mutex_);
    EXPECT_FALSE(news_.wait_for(lock, std::chrono::milliseconds(200), [&] { return notes_.size() > 1; })) << "it joined before it left";
  });
  first.reset();
  EXPECT_TRUE(second.Hear().has_welcome());
  EXPECT_THAT(Notes(), ElementsAre("joined a", "left a 2: its connection to the broker broke", "joined a"));
  EXPECT_TRUE(attendance_->IsAttending("a"));
}

TEST_F(AttendanceTest, AtTheEndEveryStreamIsToldWhy) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  ASSERT_TRUE(peer.Hear().has_welcome());
  attendance_->Shutdown("no more steps", true);
  const v1::BrokerMessage last = peer.Hear();
  EXPECT_EQ(last.shutdown().reason(), "no more steps");
  EXPECT_TRUE(last.shutdown().failed());
  EXPECT_EQ(TurnedAway(CertifiedAs("b"), HelloOf("b")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

// ---- Enroll -----------------------------------------------------------------------------------------------------------------------------

class EnrollTest : public AttendanceTest {
 protected:
  grpc::Status Enroll(const std::string& token, uint32_t version, v1::EnrollResponse& response) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("broker");
    const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(address_, WithoutCertificate(), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
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
