// An executor's line to a broker that plays by a script.
#include "services/executor/broker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/transport/testing/name_server.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ScriptedBroker final : public v1::Broker::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>;
  using Script = std::function<grpc::Status(Stream& stream)>;
  explicit ScriptedBroker(Script script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedBroker() override { server_->Shutdown(std::chrono::system_clock::now()); }
  grpc::Status Attend(grpc::ServerContext*, Stream* stream) override {
    ++streams_;
    return script_(*stream);
  }
  SessionOptions Options(double timeout_seconds = 60) const {
    return {.address = absl::StrCat("127.0.0.1:", port_),
            .credentials = grpc::InsecureChannelCredentials(),
            .timeout_seconds = timeout_seconds};
  }
  int port() const { return port_; }
  int streams() const { return streams_; }

 private:
  const Script script_;
  std::atomic<int> streams_ = 0;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

v1::BrokerMessage Welcome() {
  v1::BrokerMessage message;
  message.mutable_welcome();
  return message;
}

// Runs a task on the session and waits until it has run.
void Ask(BrokerSession& session) {
  std::promise<void> answered;
  session.Post([&] { answered.set_value(); });
  answered.get_future().wait();
}

TEST(BrokerSessionTest, ARefusalEndsTheSessionWithItsReasonAndIsNotTriedAgain) {
  ScriptedBroker broker([](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage hello;
    stream.Read(&hello);
    v1::BrokerMessage refusal;
    refusal.mutable_refusal()->set_reason("IncompatibleProtocol");
    refusal.mutable_refusal()->set_message("executor a speaks protocol version 7, this broker 1");
    stream.Write(refusal);
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "executor a speaks protocol version 7, this broker 1");
  });
  BrokerSession session(broker.Options());
  const absl::Status status = session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("IncompatibleProtocol"), HasSubstr("version 7, this broker 1")));
  EXPECT_EQ(broker.streams(), 1);
  EXPECT_FALSE(session.connected());
}

TEST(BrokerSessionTest, AnswersAndAttendsWhileTheStreamIsUpAndAnswersWhileItRedials) {
  std::promise<void> hang_up;
  const std::shared_future<void> when = hang_up.get_future().share();
  ScriptedBroker broker([&](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage hello;
    stream.Read(&hello);
    if (when.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    stream.Write(Welcome());
    when.wait();
    return grpc::Status::OK;
  });
  BrokerSession session(broker.Options());
  EXPECT_FALSE(session.connected());
  std::promise<void> welcomed;
  std::thread runner([&] {
    const absl::Status status = session.Run([] { return v1::Hello(); }, [&](const v1::BrokerMessage&) { welcomed.set_value(); });
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  });
  welcomed.get_future().wait();
  EXPECT_TRUE(session.connected());
  for (int i = 0; i < 10; ++i) Ask(session);
  hang_up.set_value();
  while (broker.streams() < 2) Ask(session);  // answered between streams and on them
  while (session.connected()) std::this_thread::yield();
  Ask(session);
  session.Stop();
  runner.join();
}

// The broker knows then that none need be waited for.
TEST(BrokerSessionTest, AnExecutorThatShallEndSaysSoLast) {
  std::vector<v1::ExecutorMessage::KindCase> heard;
  ScriptedBroker broker([&](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage message;
    stream.Read(&message);
    stream.Write(Welcome());
    while (stream.Read(&message)) heard.push_back(message.kind_case());
    return grpc::Status::OK;
  });
  BrokerSession session(broker.Options());
  std::promise<void> welcomed;
  std::thread runner([&] {
    const absl::Status status = session.Run([] { return v1::Hello(); }, [&](const v1::BrokerMessage&) { welcomed.set_value(); });
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  });
  welcomed.get_future().wait();
  session.Stop();
  runner.join();
  EXPECT_THAT(heard, ::testing::ElementsAre(v1::ExecutorMessage::kLeaving));
}

TEST(BrokerSessionTest, StopDoesNotHangOnBrokerThatStoppedReading) {
  std::promise<void> over;
  ScriptedBroker broker([when = over.get_future().share()](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage hello;
    stream.Read(&hello);
    stream.Write(Welcome());
    when.wait();
    return grpc::Status::OK;
  });
  BrokerSession session(broker.Options());
  std::promise<void> welcomed;
  auto ran = std::async(std::launch::async,
                        [&] { return session.Run([] { return v1::Hello(); }, [&](const v1::BrokerMessage&) { welcomed.set_value(); }); });
  welcomed.get_future().wait();
  session.Stop();
  EXPECT_EQ(ran.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  over.set_value();
  EXPECT_TRUE(absl::IsCancelled(ran.get()));
}

TEST(BrokerSessionTest, ReportsAreRepeatedUntilTheyAreAcknowledged) {
  std::vector<uint64_t> heard;
  ScriptedBroker broker([&](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage message;
    stream.Read(&message);
    stream.Write(Welcome());
    while (heard.size() < 2 && stream.Read(&message)) heard.push_back(message.sequence());
    if (heard.size() == 2) {
      heard.push_back(0);  // the first stream ends here, with one of two reports acknowledged
      v1::BrokerMessage ack;
      ack.mutable_ack()->set_sequence(1);
      stream.Write(ack);
      return grpc::Status::OK;
    }
    stream.Read(&message);
    heard.push_back(message.sequence());
    v1::BrokerMessage shutdown;
    shutdown.mutable_shutdown()->set_reason("done");
    stream.Write(shutdown);
    return grpc::Status::OK;
  });
  BrokerSession session(broker.Options());
  session.Report({});
  session.Report({});
  const absl::Status status = session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(heard, ::testing::ElementsAre(1, 2, 0, 2));
}

TEST(BrokerSessionTest, SaysOnceThatTheBrokerIsAwayAndOnceThatItIsBack) {
  std::atomic<int> attempts = 0;
  ScriptedBroker broker([&](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage hello;
    stream.Read(&hello);
    const int attempt = ++attempts;
    if (attempt > 1 && attempt < 4) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    stream.Write(Welcome());
    if (attempt == 1) return grpc::Status::OK;
    v1::BrokerMessage shutdown;
    shutdown.mutable_shutdown()->set_reason("done");
    stream.Write(shutdown);
    return grpc::Status::OK;
  });
  BrokerSession session(broker.Options());
  ::testing::internal::CaptureStderr();
  const absl::Status status = session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status;
  const auto count = [&](const char* words) {
    int found = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("cannot be reached"), 1) << log;
  EXPECT_EQ(count("is back"), 1) << log;
  EXPECT_LT(log.find("cannot be reached"), log.find("is back"));
}

TEST(BrokerSessionTest, TellsOfContactAsLongAsTheStreamIsUpAndNotWithoutABroker) {
  std::promise<void> end;
  const std::shared_future<void> when = end.get_future().share();
  ScriptedBroker broker([&](ScriptedBroker::Stream& stream) {
    v1::ExecutorMessage hello;
    stream.Read(&hello);
    stream.Write(Welcome());
    when.wait();
    v1::BrokerMessage shutdown;
    shutdown.mutable_shutdown()->set_reason("done");
    stream.Write(shutdown);
    return grpc::Status::OK;
  });
  std::atomic<int> contacts = 0;
  std::promise<void> often;
  SessionOptions options = broker.Options();
  options.contact_seconds = 0.001;
  options.on_contact = [&] {
    if (++contacts == 10) often.set_value();  // the broker has said one thing
  };
  BrokerSession session(options);
  std::thread runner([&] { EXPECT_TRUE(session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {}).ok()); });
  // The session has more to do than that, and tells of it all the same.
  for (int i = 0; i < 10; ++i) Ask(session);
  EXPECT_EQ(often.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  end.set_value();
  runner.join();

  contacts = 0;
  BrokerSession unconnected({.address = "127.0.0.1:0",
                             .credentials = grpc::InsecureChannelCredentials(),
                             .timeout_seconds = 0,
                             .on_contact = [&] { ++contacts; },
                             .contact_seconds = 0});
  EXPECT_FALSE(unconnected.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {}).ok());
  EXPECT_EQ(contacts, 0);
}

TEST(BrokerSessionTest, ABrokerThatStaysAwayIsGivenUp) {
  BrokerSession session({.address = "127.0.0.1:0", .credentials = grpc::InsecureChannelCredentials(), .timeout_seconds = 0});
  const absl::Status status = session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:0"));
}

// In a cluster the Pod of an executor may look for the broker's Service before there is one.
TEST(BrokerSessionTest, ABrokerWhoseNameComesLateIsFoundSoon) {
  ScriptedBroker broker([](ScriptedBroker::Stream& stream) {
    v1::BrokerMessage shutdown;
    shutdown.mutable_shutdown();
    stream.Write(shutdown);
    return grpc::Status::OK;
  });
  transport::testing::NameServer names(/*refusals=*/10);
  SessionOptions options = broker.Options(/*timeout_seconds=*/30);
  options.address = names.Target(broker.port());
  options.renewal = std::chrono::milliseconds(20);
  BrokerSession session(options);
  EXPECT_EQ(session.Run([] { return v1::Hello(); }, [](const v1::BrokerMessage&) {}), absl::OkStatus());
  EXPECT_EQ(broker.streams(), 1);
}

}  // namespace
}  // namespace fusionllm::services
