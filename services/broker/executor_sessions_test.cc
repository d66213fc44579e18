// Who may attend a run, over real TLS: streams of executors with the right and the wrong certificate, version, name and token.
#include "services/broker/executor_sessions.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/testing/executor_sessions_fixture.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(ExecutorSessionsTest, ExecutorOfTheJobIsWelcomedHeardAndSeenOff) {
  {
    Peer peer(address_, CertifiedAs("a"));
    ASSERT_TRUE(peer.Say(HelloOf("a")));
    const v1::BrokerMessage welcome = peer.Hear();
    EXPECT_EQ(welcome.welcome().job_document(), "the job");
    EXPECT_TRUE(executor_sessions_->IsConnected("a"));
    EXPECT_TRUE(executor_sessions_->IsConnected("A")) << "names are compared as certificates are";
    v1::ExecutorMessage message;
    message.set_sequence(7);
    message.mutable_leaving();
    ASSERT_TRUE(peer.Say(message));
    EXPECT_EQ(peer.Hear().ack().sequence(), 7);
    EXPECT_TRUE(peer.End().ok());
  }
  AwaitNotes(3);
  EXPECT_THAT(Notes(), ElementsAre("joined a", "a said 7", "left a 2: it was asked to end"));
  EXPECT_FALSE(executor_sessions_->IsConnected("a"));
  EXPECT_FALSE(executor_sessions_->Send("a", {}));
}

TEST_F(ExecutorSessionsTest, AnotherProtocolVersionIsRefusedNamingBoth) {
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

TEST_F(ExecutorSessionsTest, ACertificateOfAnotherJobsAuthorityGetsNoStream) {
  const auto other = *security::CertificateAuthority::Create();
  const Turned turned = TurnedAway(CertifiedAs("a", other), HelloOf("a"));
  EXPECT_EQ(turned.reason, "");
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAVAILABLE) << "TLS itself refuses: " << turned.status.error_message();
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(ExecutorSessionsTest, APeerWithoutACertificateMayEnrollButNotAttend) {
  const Turned turned = TurnedAway(WithoutCertificate(), HelloOf("a"));
  EXPECT_EQ(turned.reason, "WrongCertificate");
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(ExecutorSessionsTest, AnOutsiderIsRefusedBeforeItHasSaidAnything) {
  Peer peer(address_, WithoutCertificate());
  EXPECT_EQ(peer.Hear().refusal().reason(), "WrongCertificate");
  EXPECT_EQ(peer.End().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

class ShortHelloTimeoutTest : public ExecutorSessionsTest {
 protected:
  ShortHelloTimeoutTest() : ExecutorSessionsTest({.hello_timeout = std::chrono::seconds(1)}) {}
};

TEST_F(ShortHelloTimeoutTest, AStreamThatBringsNoHelloIsEnded) {
  Peer silent(address_, CertifiedAs("a"));
  EXPECT_FALSE(silent.Hear().has_welcome());
  EXPECT_EQ(silent.End().error_code(), grpc::StatusCode::CANCELLED) << "by the broker, long before this peer's own deadline";
}

TEST_F(ShortHelloTimeoutTest, AStreamThatHasBroughtItStays) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  ASSERT_TRUE(peer.Hear().has_welcome());
  // The timeout of another stream, begun later, runs out; this one's would have before.
  Peer silent(address_, CertifiedAs("b"));
  EXPECT_FALSE(silent.Hear().has_welcome());
  v1::ExecutorMessage message;
  message.set_sequence(7);
  ASSERT_TRUE(peer.Say(message));
  EXPECT_EQ(peer.Hear().ack().sequence(), 7);
}

TEST_F(ExecutorSessionsTest, ANameThatIsNotInTheCertificateIsRefused) {
  for (const char* name : {"b", "localhost", "127.0.0.1", "A", "a "}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf(name));
    EXPECT_EQ(turned.reason, "WrongCertificate") << name;
    EXPECT_THAT(turned.message, HasSubstr(absl::StrCat("'", name, "'")));
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << name;
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

TEST_F(ExecutorSessionsTest, WhoDoesNotIntroduceThemselvesIsRefused) {
  v1::ExecutorMessage no_hello;
  no_hello.mutable_step()->set_step(1);
  for (const v1::ExecutorMessage& first : {no_hello, v1::ExecutorMessage(), HelloOf(""), HelloOf(std::string(254, 'x'))}) {
    const Turned turned = TurnedAway(CertifiedAs("a"), first);
    EXPECT_EQ(turned.reason, "MalformedHandshake");
    EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_THAT(Notes(), IsEmpty());
}

// The others dial what it says.
TEST_F(ExecutorSessionsTest, AnAddressOfAHelloIsOneOfItsSenderThatPeersCanDial) {
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

TEST_F(ExecutorSessionsTest, AFieldOfAHelloThatIsTooLongIsRefused) {
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

class UncertifiedAttendanceTest : public ExecutorSessionsTest {
 protected:
  UncertifiedAttendanceTest() : ExecutorSessionsTest({.require_certificate = false}) {}
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

TEST_F(ExecutorSessionsTest, ASiteIsANameOrThatOfItsMachine) {
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

TEST_F(ExecutorSessionsTest, AnOlderProcessWaitsWhileANewerOneAttends) {
  Peer newer(address_, CertifiedAs("a"));
  ASSERT_TRUE(newer.Say(HelloOf("a")));
  ASSERT_TRUE(newer.Hear().has_welcome());
  const Turned turned = TurnedAway(CertifiedAs("a"), HelloOf("a", kProtocolVersion, /*incarnation=*/1));
  EXPECT_EQ(turned.status.error_code(), grpc::StatusCode::UNAVAILABLE) << "it may try again";
  EXPECT_THAT(turned.status.error_message(), HasSubstr("a newer process attends as executor a"));
  EXPECT_THAT(Notes(), ElementsAre("joined a"));
  v1::BrokerMessage order;
  order.mutable_calibrate();
  EXPECT_TRUE(executor_sessions_->Send("a", order));
  EXPECT_TRUE(newer.Hear().has_calibrate());
}

class AttemptTest : public ExecutorSessionsTest {
 protected:
  AttemptTest() : ExecutorSessionsTest({.attempt = 1}) {}
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

TEST_F(ExecutorSessionsTest, ABrokerThatDoesNotKnowItsAttemptTakesExecutorsOfAny) {
  Peer peer(address_, CertifiedAs("a"));
  v1::ExecutorMessage hello = HelloOf("a");
  hello.mutable_hello()->set_attempt(7);
  ASSERT_TRUE(peer.Say(hello));
  EXPECT_TRUE(peer.Hear().has_welcome());
}

TEST_F(ExecutorSessionsTest, ASecondStreamOfAnExecutorTakesThePlaceOfTheFirst) {
  Peer first(address_, CertifiedAs("a"));
  ASSERT_TRUE(first.Say(HelloOf("a")));
  ASSERT_TRUE(first.Hear().has_welcome());
  Peer second(address_, CertifiedAs("a"));
  ASSERT_TRUE(second.Say(HelloOf("a")));
  ASSERT_TRUE(second.Hear().has_welcome());
  v1::BrokerMessage order;
  order.mutable_calibrate();
  EXPECT_TRUE(executor_sessions_->Send("a", order));
  EXPECT_TRUE(second.Hear().has_calibrate());
  v1::ExecutorMessage message;
  message.set_sequence(7);
  first.Say(message);
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(executor_sessions_->IsConnected("a"));
  EXPECT_THAT(Notes(), ElementsAre("joined a", "joined a")) << "neither its words nor its end are those of the executor";
}

TEST_F(ExecutorSessionsTest, AnAcknowledgementIsForTheProcessThatReported) {
  Peer former(address_, CertifiedAs("a"));
  ASSERT_TRUE(former.Say(HelloOf("a", kProtocolVersion, 1)));
  ASSERT_TRUE(former.Hear().has_welcome());
  Peer restarted(address_, CertifiedAs("a"));
  ASSERT_TRUE(restarted.Say(HelloOf("a", kProtocolVersion, 2)));
  ASSERT_TRUE(restarted.Hear().has_welcome());
  executor_sessions_->Acknowledge("a", 1, 500);  // what the former said has been recorded only now
  executor_sessions_->Acknowledge("a", 2, 3);
  EXPECT_EQ(restarted.Hear().ack().sequence(), 3) << "it would discard its own reports up to 500";
}

class LongWelcomeTest : public ExecutorSessionsTest {
 protected:
  LongWelcomeTest() : ExecutorSessionsTest(WithALongWelcome()) {}
  static ExecutorSessionsOptions WithALongWelcome() {
    ExecutorSessionsOptions options;
    options.welcome.set_job_document(std::string(3 << 20, 'x'));  // more than the connection takes from who does not read
    return options;
  }
};

TEST_F(LongWelcomeTest, WhoReadsSlowlyFindsOneAcknowledgementForAll) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  AwaitNotes(1);
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) executor_sessions_->Acknowledge("a", 2, sequence);
  ASSERT_TRUE(peer.Hear().has_welcome());
  EXPECT_EQ(peer.Hear().ack().sequence(), 100);
}

TEST_F(ExecutorSessionsTest, WhoComesBackJoinsAfterItHasLeft) {
  auto first = std::make_unique<Peer>(address_, CertifiedAs("a"));
  ASSERT_TRUE(first->Say(HelloOf("a")));
  ASSERT_TRUE(first->Hear().has_welcome());
  Peer second(address_, CertifiedAs("a"));
  SetLeaving([&, done = false]() mutable {
    if (std::exchange(done, true)) return;
    EXPECT_TRUE(second.Say(HelloOf("a")));
    base::UniqueLock lock(mutex_);
    EXPECT_FALSE(news_.wait_for(lock, std::chrono::milliseconds(200), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return notes_.size() > 1;
    })) << "it joined before it left";
  });
  first.reset();
  EXPECT_TRUE(second.Hear().has_welcome());
  EXPECT_THAT(Notes(), ElementsAre("joined a", "left a 2: its connection to the broker broke", "joined a"));
  EXPECT_TRUE(executor_sessions_->IsConnected("a"));
}

TEST_F(ExecutorSessionsTest, AtTheEndEveryStreamGetsTheReason) {
  Peer peer(address_, CertifiedAs("a"));
  ASSERT_TRUE(peer.Say(HelloOf("a")));
  ASSERT_TRUE(peer.Hear().has_welcome());
  executor_sessions_->Shutdown("no more steps", true);
  const v1::BrokerMessage last = peer.Hear();
  EXPECT_EQ(last.shutdown().reason(), "no more steps");
  EXPECT_TRUE(last.shutdown().failed());
  EXPECT_EQ(TurnedAway(CertifiedAs("b"), HelloOf("b")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace fusionllm::services
