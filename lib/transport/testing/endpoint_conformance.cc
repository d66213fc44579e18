#include "lib/transport/testing/endpoint_conformance.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "lib/transport/testing/fault_injection.h"
#include "lib/transport/testing/mailbox.h"

namespace fusionllm::transport::testing {

using ::testing::HasSubstr;

EndpointOptions EndpointConformance::Options(std::string name) {
  EndpointOptions options;
  options.name = std::move(name);
  options.job_hash = 0x1234;
  options.build_version = "test";
  options.limits = {.queue_bytes_max = 256u << 10, .unacked_bytes_max = 256u << 10, .chunk_bytes = 32u << 10};
  return options;
}

namespace {

Payload Pattern(size_t bytes, uint32_t seed) {
  tensor::Buffer buffer(bytes);
  std::minstd_rand draw(seed + 1);
  for (size_t i = 0; i < bytes; ++i) buffer.data()[i] = static_cast<std::byte>(draw() >> 8);
  return Payload::Of(std::move(buffer));
}

bool Same(const Payload& a, const Payload& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

MessageHeader Header(int64_t step, Priority priority = Priority::kTensor, uint32_t epoch = 1) {
  MessageHeader header;
  header.job_hash = 0x1234;
  header.step = step;
  header.epoch = epoch;
  header.priority = priority;
  return header;
}

// One life of an endpoint's process, which may die without a word.
EndpointOptions Mortal(EndpointOptions options, uint64_t incarnation, FaultInjector& cable) {
  options.incarnation = incarnation;
  options.decorate_stream = cable.Decorator();
  options.linger = std::chrono::milliseconds(0);
  return options;
}

void Kill(FaultInjector& cable, std::unique_ptr<Endpoint>& endpoint) {
  cable.Blackhole();
  endpoint->Close();
  endpoint.reset();
}

// b was restarted, `a` has one message of its former life. What either sends arrives, and `a` hears of so many failures first.
void ExpectRestartedPeer(Endpoint& a, Mailbox& at_a, Endpoint& b, Mailbox& at_b, size_t failures) {
  at_b.Listen(b);
  ASSERT_TRUE(b.Send("a", Header(1), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForMessages(2));
  ASSERT_TRUE(at_a.WaitForFailures(failures));
  ASSERT_TRUE(a.Send("b", Header(2), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_b.WaitForMessages(1));
  EXPECT_EQ(at_a.failures().size(), failures);
}

TEST_P(EndpointConformance, AMessageArrivesAsItWasSent) {
  auto a = Make("a"), b = Make("b");
  Mailbox inbox;
  inbox.Listen(*b);
  MessageHeader header;
  header.job_hash = 1ull << 63;
  header.epoch = 7;
  header.step = -3;
  header.micro_batch = -1;
  header.channel = 0xfffffffe;
  header.direction = 1;
  header.priority = Priority::kCheckpoint;
  ASSERT_TRUE(a->Send("b", header, Pattern(100, 1)).ok());
  ASSERT_TRUE(a->Send("b", header, Payload()).ok());
  ASSERT_TRUE(inbox.WaitForMessages(2));
  EXPECT_EQ(inbox.messages()[0].from, "a");
  MessageHeader arrived = inbox.messages()[0].header;
  arrived.not_before_ns = 0;
  EXPECT_EQ(arrived, header);
  EXPECT_TRUE(Same(inbox.messages()[0].payload, Pattern(100, 1)));
  EXPECT_TRUE(inbox.messages()[1].payload.empty());
}

TEST_P(EndpointConformance, MessagesOfOnePriorityKeepTheirOrder) {
  auto a = Make("a"), b = Make("b");
  Mailbox inbox;
  inbox.Listen(*b);
  constexpr uint32_t kSeed = 20240;
  std::minstd_rand draw(kSeed);
  constexpr int kMessages = 400;
  for (int i = 0; i < kMessages; ++i) {
    const size_t bytes = draw() % 10 == 0 ? draw() % 200'000 : draw() % 2'000;
    ASSERT_TRUE(a->Send("b", Header(i, static_cast<Priority>(draw() % kPriorityCount)), Pattern(bytes, i)).ok());
  }
  ASSERT_TRUE(inbox.WaitForMessages(kMessages));
  std::array<int64_t, kPriorityCount> last;
  last.fill(-1);
  for (const Received& message : inbox.messages()) {
    auto& before = last[static_cast<size_t>(message.header.priority)];
    EXPECT_LT(before, message.header.step);
    before = message.header.step;
    EXPECT_TRUE(Same(message.payload, Pattern(message.payload.size(), static_cast<uint32_t>(message.header.step))));
  }
}

TEST_P(EndpointConformance, AMessageLargerThanQueueAndWindowArrivesWholeAndAligned) {
  auto options = Options("a");
  options.limits.chunk_bytes = 1u << 20;
  auto a = Make(options), b = Make("b");
  Mailbox inbox;
  inbox.Listen(*b);
  const Payload big = Pattern((9u << 20) + 3, 5);
  ASSERT_TRUE(a->Send("b", Header(0), big).ok());
  ASSERT_TRUE(inbox.WaitForMessages(1));
  const Payload arrived = inbox.messages()[0].payload;
  EXPECT_TRUE(Same(arrived, big));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arrived.data()) % 64, 0u);
}

TEST_P(EndpointConformance, AMessageOverTheLimitIsRefusedAtOnce) {
  auto options = Options("a");
  options.message_bytes_max = 1000;
  auto a = Make(options), b = Make("b");
  EXPECT_EQ(a->Send("b", Header(0), Pattern(1001, 0)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(EndpointConformance, AReceiverRefusesAPeerWhoseMessageIsOverItsLimit) {
  auto options = Options("b");
  options.message_bytes_max = 1000;
  auto a = Make("a"), b = Make(options);
  Mailbox at_a, at_b;
  at_b.Listen(*b);
  at_a.WatchFailures(*a);
  at_b.WatchFailures(*b);
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(1001, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(1));
  ASSERT_TRUE(at_b.WaitForFailures(1));
  EXPECT_EQ(at_b.failures()[0].second.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(at_b.failures()[0].second.message()), HasSubstr("1001"));
}

TEST_P(EndpointConformance, ManyPeersTalkAtTheSameTime) {
  constexpr int kPeers = 6;
  constexpr int kMessages = 20;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<Mailbox> inboxes(kPeers);
  for (int i = 0; i < kPeers; ++i) endpoints.push_back(Make("peer-" + std::to_string(i)));
  for (int i = 0; i < kPeers; ++i) inboxes[i].Listen(*endpoints[i]);
  std::vector<std::thread> senders;
  for (int i = 0; i < kPeers; ++i) {
    senders.emplace_back([&, i] {
      for (int m = 0; m < kMessages; ++m) {
        for (int j = 0; j < kPeers; ++j) {
          if (j == i) continue;
          EXPECT_TRUE(endpoints[i]->Send("peer-" + std::to_string(j), Header(m), Pattern(50'000, i)).ok());
        }
      }
    });
  }
  for (auto& sender : senders) sender.join();
  for (int i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(inboxes[i].WaitForMessages(kMessages * (kPeers - 1)));
    for (const Received& message : inboxes[i].messages()) {
      EXPECT_TRUE(Same(message.payload, Pattern(50'000, static_cast<uint32_t>(message.from.back() - '0'))));
    }
  }
}

TEST_P(EndpointConformance, ASlowReceiverHoldsTheSenderBack) {
  std::atomic<size_t> sent{0};
  std::atomic<bool> too_far{false};
  auto a = Make("a"), b = Make("b");
  constexpr size_t kMessages = 64, kBytes = 64u << 10;
  // Queue and window take 4 messages each; one is being received, one is on its way between the two, a decorator may queue as much again.
  constexpr size_t kAheadMax = 24;
  std::thread sender([&] {
    for (size_t i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(a->Send("b", Header(static_cast<int64_t>(i)), Pattern(kBytes, 0)).ok());
      ++sent;
    }
  });
  Mailbox inbox;
  inbox.on_message = [&](size_t received) {
    if (sent > received + kAheadMax) too_far = true;
  };
  while (sent < 4) std::this_thread::yield();
  EXPECT_LE(sent, kAheadMax);  // without a receiver nothing is taken
  inbox.Listen(*b);
  ASSERT_TRUE(inbox.WaitForMessages(kMessages));
  sender.join();
  EXPECT_FALSE(too_far);
}

TEST_P(EndpointConformance, ControlOvertakesBulk) {
  auto a = Make("a"), b = Make("b");
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());  // waits for a receiver, and so holds back what follows
  ASSERT_TRUE(a->Send("b", Header(1, Priority::kCheckpoint), Pattern(4u << 20, 0)).ok());
  ASSERT_TRUE(a->Send("b", Header(2, Priority::kControl), Pattern(10, 0)).ok());
  Mailbox inbox;
  inbox.Listen(*b);
  ASSERT_TRUE(inbox.WaitForMessages(3));
  EXPECT_EQ(inbox.messages()[2].header.step, 1);
}

TEST_P(EndpointConformance, CancellingAnEpochDropsItsMessagesAndSparesControl) {
  auto a = Make("a"), b = Make("b");
  ASSERT_TRUE(a->Send("b", Header(0, Priority::kControl), Pattern(10, 0)).ok());
  std::thread blocked([&] {
    absl::Status status;
    for (int i = 0; i < 64 && status.ok(); ++i) status = a->Send("b", Header(1), Pattern(64u << 10, 0));
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  });
  while (a->stats("b").wire_bytes_sent < 64u << 10) std::this_thread::yield();
  a->CancelEpoch(2);
  b->CancelEpoch(2);
  blocked.join();
  EXPECT_EQ(a->Send("b", Header(1), Pattern(10, 0)).code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(a->Send("b", Header(2, Priority::kTensor, 2), Pattern(100'000, 9)).ok());
  ASSERT_TRUE(a->Send("b", Header(3, Priority::kControl), Pattern(10, 0)).ok());
  Mailbox inbox;
  inbox.Listen(*b);
  ASSERT_TRUE(inbox.WaitForMessages(3));
  for (const Received& message : inbox.messages()) {
    EXPECT_NE(message.header.step, 1);
    if (message.header.step == 2) {
      EXPECT_TRUE(Same(message.payload, Pattern(100'000, 9)));
    }
  }
}

TEST_P(EndpointConformance, ADeadPeerIsReportedOnceOnEitherSide) {
  FaultInjector cable;
  auto options_a = Options("a"), options_b = Options("b"), options_other = Options("other");
  options_a.reconnect_timeout = options_other.reconnect_timeout = std::chrono::milliseconds(200);
  options_b.linger = std::chrono::milliseconds(0);
  options_a.decorate_stream = options_b.decorate_stream = cable.Decorator();
  auto a = Make(options_a), b = Make(options_b), other = Make(options_other);
  Mailbox at_a, at_b, at_other;
  at_a.Listen(*a);
  at_b.Listen(*b);
  at_other.Listen(*other);
  at_a.WatchFailures(*a);
  at_other.WatchFailures(*other);
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(b->Send("a", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(b->Send("other", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForMessages(1));
  ASSERT_TRUE(at_b.WaitForMessages(1));
  ASSERT_TRUE(at_other.WaitForMessages(1));
  cable.Blackhole();
  b->Close();
  while (a->Send("b", Header(1), Pattern(10, 0)).ok()) std::this_thread::yield();
  ASSERT_TRUE(at_a.WaitForFailures(1));
  ASSERT_TRUE(at_other.WaitForFailures(1));  // it only ever listened to b
  EXPECT_EQ(at_a.failures()[0].first, "b");
  EXPECT_EQ(at_a.failures()[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a->Send("b", Header(1), Pattern(10, 0)).code(), absl::StatusCode::kUnavailable);
  a->Close();
  EXPECT_EQ(at_a.failures().size(), 1u);
}

TEST_P(EndpointConformance, ACutConnectionIsResumedWithoutLossOrRepetition) {
  FaultInjector cable;
  auto options = Options("a");
  options.decorate_stream = cable.Decorator();
  options.backoff_min = options.backoff_max = std::chrono::milliseconds(1);
  auto a = Make(options), b = Make("b");
  Mailbox inbox, failures;
  inbox.Listen(*b);
  failures.WatchFailures(*a);
  failures.WatchFailures(*b);
  constexpr int kMessages = 300;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(a->Send("b", Header(i), Pattern(40'000, i)).ok());
  });
  for (size_t cut = 0; cut < 10; ++cut) {
    ASSERT_TRUE(inbox.WaitForMessages(cut * 25 + 1));
    while (cable.CutAll() == 0) std::this_thread::yield();
  }
  sender.join();
  ASSERT_TRUE(inbox.WaitForMessages(kMessages));
  const auto messages = inbox.messages();
  ASSERT_EQ(messages.size(), static_cast<size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(messages[i].header.step, i);
    EXPECT_TRUE(Same(messages[i].payload, Pattern(40'000, i)));
  }
  EXPECT_GE(a->stats("b").reconnects, 5u);
  EXPECT_TRUE(failures.failures().empty());
}

TEST_P(EndpointConformance, ACorruptFrameBreaksThePeerOnBothSidesAndIsNeverDelivered) {
  FaultInjector cable;
  auto options = Options("a");
  options.decorate_stream = cable.Decorator();
  auto a = Make(options), b = Make("b");
  Mailbox at_a, at_b;
  at_b.Listen(*b);
  at_a.WatchFailures(*a);
  at_b.WatchFailures(*b);
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_b.WaitForMessages(1));
  cable.CorruptNextData();
  ASSERT_TRUE(a->Send("b", Header(1), Pattern(100'000, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(1));
  ASSERT_TRUE(at_b.WaitForFailures(1));
  EXPECT_EQ(at_a.failures()[0].second.code(), absl::StatusCode::kDataLoss) << at_a.failures()[0].second;
  EXPECT_EQ(at_b.failures()[0].second.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(at_b.failures()[0].second.message()), HasSubstr("checksum"));
  a->Close();
  b->Close();
  EXPECT_EQ(at_b.messages().size(), 1u);
  EXPECT_EQ(at_b.failures().size(), 1u);
}

TEST_P(EndpointConformance, APeerOfAnotherJobIsRefusedWithTheReason) {
  auto options = Options("a");
  options.job_hash = 99;
  auto a = Make(options), b = Make("b");
  Mailbox at_a;
  at_a.WatchFailures(*a);
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(1));
  EXPECT_EQ(at_a.failures()[0].second.code(), absl::StatusCode::kFailedPrecondition) << at_a.failures()[0].second;
  EXPECT_THAT(std::string(at_a.failures()[0].second.message()), HasSubstr("job 0000000000000063"));
}

TEST_P(EndpointConformance, ARestartedPeerIsReportedOnceAndThenWelcome) {
  FaultInjector cable, second_cable;
  auto a = Make("a"), b = Make(Mortal(Options("b"), 1, cable));
  Mailbox at_a, at_b, at_second;
  at_a.Listen(*a);
  at_a.WatchFailures(*a);
  at_b.Listen(*b);
  ASSERT_TRUE(b->Send("a", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForMessages(1));
  ASSERT_TRUE(at_b.WaitForMessages(1));
  Kill(cable, b);
  b = Make(Mortal(Options("b"), 2, second_cable));
  ASSERT_NO_FATAL_FAILURE(ExpectRestartedPeer(*a, at_a, *b, at_second, /*failures=*/1));
  EXPECT_THAT(std::string(at_a.failures()[0].second.message()), HasSubstr("restarted"));
}

TEST_P(EndpointConformance, ForgottenPeerCanBeReused) {
  FaultInjector cable;
  auto options = Options("a");
  options.decorate_stream = cable.Decorator();
  auto a = Make(options), b = Make("b");
  Mailbox at_a, at_b;
  at_b.Listen(*b);
  at_a.WatchFailures(*a);
  at_b.WatchFailures(*b);
  cable.CorruptNextData();
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(1));
  ASSERT_TRUE(at_b.WaitForFailures(1));
  EXPECT_FALSE(a->Send("b", Header(1), Pattern(10, 0)).ok());
  b->ForgetPeer("a");
  a->ForgetPeer("b");
  ASSERT_TRUE(a->Send("b", Header(2), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_b.WaitForMessages(1));
  EXPECT_EQ(at_b.messages()[0].header.step, 2);
}

// As in a retried probe of a link: only the side that probes is told to use the peer again.
TEST_P(EndpointConformance, RefusedPeerIsAcceptedAgainOnceItForgets) {
  FaultInjector cable;
  auto options = Options("a");
  options.decorate_stream = cable.Decorator();
  auto a = Make(options), b = Make("b");
  Mailbox at_a, at_b;
  at_a.Listen(*a);
  at_b.Listen(*b);
  at_a.WatchFailures(*a);
  at_b.WatchFailures(*b);
  cable.CorruptNextData();
  ASSERT_TRUE(a->Send("b", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(1));
  ASSERT_TRUE(at_b.WaitForFailures(1));
  a->ForgetPeer("b");
  ASSERT_TRUE(a->Send("b", Header(1), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForFailures(2)) << "it is told of the failure";
  EXPECT_THAT(std::string(at_a.failures()[1].second.message()), HasSubstr("b has given up on a"));
  a->ForgetPeer("b");
  ASSERT_TRUE(a->Send("b", Header(2), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_b.WaitForMessages(1));
  EXPECT_EQ(at_b.messages()[0].header.step, 2);
  ASSERT_TRUE(b->Send("a", Header(3), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForMessages(1));
  EXPECT_EQ(at_a.messages()[0].header.step, 3);
}

TEST_P(EndpointConformance, ForgettingPreviousIncarnationPreventsPeerFailure) {
  FaultInjector cable, second_cable;
  auto a = Make("a"), b = Make(Mortal(Options("b"), 100, cable));
  Mailbox at_a, at_second;
  at_a.Listen(*a);
  at_a.WatchFailures(*a);
  EXPECT_FALSE(a->ForgetPreviousIncarnation("b", 200)) << "nobody is known by that name";
  ASSERT_TRUE(b->Send("a", Header(0), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_a.WaitForMessages(1));
  EXPECT_FALSE(a->ForgetPreviousIncarnation("b", 100)) << "it is well, and the one that is meant";
  Kill(cable, b);
  EXPECT_TRUE(a->ForgetPreviousIncarnation("b", 200));
  b = Make(Mortal(Options("b"), 200, second_cable));
  ASSERT_NO_FATAL_FAILURE(ExpectRestartedPeer(*a, at_a, *b, at_second, /*failures=*/0));
  EXPECT_FALSE(a->ForgetPreviousIncarnation("b", 200));
  ASSERT_TRUE(a->Send("b", Header(3), Pattern(10, 0)).ok());
  ASSERT_TRUE(at_second.WaitForMessages(2)) << "it was the one that is meant";
}

TEST_P(EndpointConformance, ClosingDeliversWhatWasSentAndIsNoFailure) {
  auto options = Options("a");
  options.linger = std::chrono::seconds(20);
  auto a = Make(options), b = Make("b");
  Mailbox at_b;
  at_b.Listen(*b);
  at_b.WatchFailures(*b);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(a->Send("b", Header(i), Pattern(20'000, 0)).ok());
  a->Close();
  ASSERT_TRUE(at_b.WaitForMessages(50));
  EXPECT_EQ(a->Send("b", Header(0), Pattern(10, 0)).code(), absl::StatusCode::kCancelled);
  b->Close();
  EXPECT_TRUE(at_b.failures().empty());
}

TEST_P(EndpointConformance, ClosingWhileSendersAreBlockedReleasesThem) {
  auto options = Options("a");
  options.linger = std::chrono::milliseconds(10);
  auto a = Make(options), b = Make("b");  // b has no receiver: the queues fill
  std::vector<std::thread> senders;
  for (int t = 0; t < 3; ++t) {
    senders.emplace_back([&] {
      absl::Status status;
      while (status.ok()) status = a->Send("b", Header(0), Pattern(50'000, 0));
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    });
  }
  while (a->stats("b").wire_bytes_sent < 100'000) std::this_thread::yield();
  a->Close();
  for (auto& sender : senders) sender.join();
}

TEST_P(EndpointConformance, CountersMeasureTheWire) {
  auto a = Make("a"), b = Make("b");
  Mailbox inbox;
  inbox.Listen(*b);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(a->Send("b", Header(i), Pattern(100'000, 0)).ok());
    ASSERT_TRUE(inbox.WaitForMessages(i + 1));
  }
  // A round trip is measured by a small message after a silence, and the silence begins when the last acknowledgement is back.
  size_t small = 0;
  const auto deadline = std::chrono::steady_clock::now() + Mailbox::kTimeout;
  while (a->stats("b").rtt_s == 0 && std::chrono::steady_clock::now() < deadline) {
    ASSERT_TRUE(a->Send("b", Header(30), Pattern(10, 0)).ok());
    ASSERT_TRUE(inbox.WaitForMessages(30 + ++small));
  }
  const uint64_t expected = 30 * WireBytes(100'000, 32u << 10) + small * WireBytes(10, 32u << 10);
  const LinkStats sent = a->stats("b"), received = b->stats("a");
  EXPECT_GE(sent.wire_bytes_sent, expected);
  EXPECT_LE(sent.wire_bytes_sent, expected + 400);  // the handshake
  EXPECT_GE(sent.wire_bytes_sent_by_priority[static_cast<size_t>(Priority::kTensor)], expected);
  EXPECT_EQ(std::accumulate(sent.wire_bytes_sent_by_priority.begin(), sent.wire_bytes_sent_by_priority.end(), uint64_t{0}),
            sent.wire_bytes_sent);
  const LinkStats answers = b->stats("a");  // acknowledgements alone
  EXPECT_EQ(answers.wire_bytes_sent_by_priority[static_cast<size_t>(Priority::kControl)], answers.wire_bytes_sent);
  EXPECT_EQ(sent.messages_sent, 30 + small);
  EXPECT_EQ(received.messages_received, 30 + small);
  EXPECT_GE(received.wire_bytes_received, expected);
  const size_t tensor = static_cast<size_t>(Priority::kTensor);
  EXPECT_EQ(received.wire_bytes_received_by_priority[tensor], sent.wire_bytes_sent_by_priority[tensor]);
  EXPECT_GT(sent.bandwidth_bytes_per_s, 0);
  EXPECT_GT(sent.rtt_s, 0);
}

}  // namespace
}  // namespace fusionllm::transport::testing
