#include "lib/transport/emulated_endpoint.h"

#include <thread>

#include "gtest/gtest.h"
#include "lib/transport/frame.h"
#include "lib/transport/inproc/inproc.h"
#include "lib/transport/testing/endpoint_conformance.h"
#include "lib/transport/testing/fake_clock.h"
#include "lib/transport/testing/mailbox.h"

namespace fusionllm::transport::testing {
namespace {

using testing::kMs;

constexpr int64_t kStart = 1000 * kMs;

// Fast enough for the suite's data, slow enough that links are the bottleneck.
class EmulatedCarrier : public Carrier {
 public:
  std::unique_ptr<Endpoint> Make(EndpointOptions options) override {
    EmulationOptions emulation;
    emulation.buckets = buckets_;
    for (const char* peer : {"a", "b", "other", "peer-0", "peer-1", "peer-2", "peer-3", "peer-4", "peer-5"}) {
      if (options.name == peer) continue;
      emulation.paths[peer] = {.buckets = {"port:" + options.name}, .latency_ns = kMs, .jitter_ns = kMs / 2, .loss = 1e-3};
    }
    emulation.queue_bytes_max = options.limits.queue_bytes_max;
    emulation.chunk_bytes = options.limits.chunk_bytes;
    emulation.linger = options.linger;
    return *MakeEmulatedEndpoint(network_.MakeEndpoint(std::move(options)), std::move(emulation));
  }

 private:
  static std::vector<BucketSpec> Ports() {
    std::vector<BucketSpec> ports;
    for (const char* name : {"a", "b", "other", "peer-0", "peer-1", "peer-2", "peer-3", "peer-4", "peer-5"}) {
      ports.push_back({std::string("port:") + name, 30e6});
    }
    return ports;
  }
  InprocNetwork network_;
  std::shared_ptr<SharedBuckets> buckets_ = *SharedBuckets::InMemory(Ports());
};

INSTANTIATE_TEST_SUITE_P(Emulated, EndpointConformance,
                         ::testing::Values(CarrierCase{"emulated", [] { return std::make_unique<EmulatedCarrier>(); }}));

// a and b behind one link of 1 MB/s and 40 ms in each direction, on a clock that the test moves. Times below are exact.
class EmulatedLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<Endpoint> Make(std::string name, std::map<std::string, EmulatedPath> paths) {
    EmulationOptions emulation;
    emulation.buckets = buckets_;
    emulation.paths = std::move(paths);
    emulation.clock = &clock_;
    emulation.catch_up_ns_max = 1'000'000 * kMs;  // the test moves the clock without waiting for anyone
    emulation.linger = std::chrono::milliseconds(0);
    EndpointOptions options;
    options.name = std::move(name);
    return *MakeEmulatedEndpoint(network_.MakeEndpoint(options), std::move(emulation));
  }
  // Moves the clock until `count` messages have arrived.
  void RunUntil(Mailbox& inbox, size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + Mailbox::kTimeout;
    while (inbox.messages().size() < count && std::chrono::steady_clock::now() < deadline) {
      clock_.Advance(kMs);
      std::this_thread::yield();
    }
    ASSERT_GE(inbox.messages().size(), count);
  }
  // A message that takes `ms` milliseconds of the link.
  static Payload Lasting(int64_t ms) { return Payload::Of(std::string(static_cast<size_t>(ms) * 1000 - kFrameHeaderBytes, 'x')); }

  FakeClock clock_{kStart};
  InprocNetwork network_;
  std::shared_ptr<SharedBuckets> buckets_ = *SharedBuckets::InMemory(std::vector<BucketSpec>{{"out", 1e6}, {"back", 1e6}});
  std::unique_ptr<Endpoint> a_ = Make("a", {{"b", {.buckets = {"out"}, .latency_ns = 40 * kMs}}, {"c", {.buckets = {"out"}}}});
  std::unique_ptr<Endpoint> b_ = Make("b", {{"a", {.buckets = {"back"}, .latency_ns = 40 * kMs}}});
};

TEST_F(EmulatedLinkTest, AMessageArrivesWhenItsLastByteHasPassedAndTravelled) {
  Mailbox inbox;
  inbox.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(100)).ok());
  ASSERT_TRUE(a_->Send("b", {}, Lasting(20)).ok());
  RunUntil(inbox, 2);
  EXPECT_EQ(inbox.messages()[0].header.not_before_ns, kStart + 140 * kMs);
  EXPECT_EQ(inbox.messages()[1].header.not_before_ns, kStart + 160 * kMs);
  EXPECT_GE(clock_.NowNs(), kStart + 160 * kMs);
}

TEST_F(EmulatedLinkTest, NothingIsDeliveredBeforeItsTime) {
  int64_t delivered_at = 0;
  Mailbox inbox;
  inbox.on_message = [&](size_t) { delivered_at = clock_.NowNs(); };
  inbox.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(5)).ok());
  RunUntil(inbox, 1);
  EXPECT_GE(delivered_at, kStart + 45 * kMs);
}

TEST_F(EmulatedLinkTest, AControlMessageWaitsForOneSliceNotForTheTensorAhead) {
  Mailbox inbox;
  inbox.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(2000)).ok());
  MessageHeader control;
  control.priority = Priority::kControl;
  ASSERT_TRUE(a_->Send("b", control, Lasting(1)).ok());
  RunUntil(inbox, 2);
  EXPECT_EQ(inbox.messages()[0].header.priority, Priority::kControl);
  EXPECT_LE(inbox.messages()[0].header.not_before_ns, kStart + (40 + 17 + 1) * kMs);  // one slice of 16 KiB
  // No time is lost between slices; the tensor's second frame has a header of its own.
  EXPECT_EQ(inbox.messages()[1].header.not_before_ns, kStart + 2041 * kMs + kFrameHeaderBytes * 1000);
}

TEST_F(EmulatedLinkTest, TheTwoDirectionsDoNotShareALink) {
  Mailbox at_a, at_b;
  at_a.Listen(*a_);
  at_b.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(100)).ok());
  ASSERT_TRUE(b_->Send("a", {}, Lasting(100)).ok());
  RunUntil(at_a, 1);
  RunUntil(at_b, 1);
  EXPECT_EQ(at_a.messages()[0].header.not_before_ns, kStart + 140 * kMs);
  EXPECT_EQ(at_b.messages()[0].header.not_before_ns, kStart + 140 * kMs);
}

TEST_F(EmulatedLinkTest, TwoPeersBehindOneLinkShareIt) {
  auto c = Make("c", {});
  Mailbox at_b, at_c;
  at_b.Listen(*b_);
  at_c.Listen(*c);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(500)).ok());
  ASSERT_TRUE(a_->Send("c", {}, Lasting(500)).ok());
  RunUntil(at_b, 1);
  RunUntil(at_c, 1);
  const int64_t sent_to_b = at_b.messages()[0].header.not_before_ns - 40 * kMs, sent_to_c = at_c.messages()[0].header.not_before_ns;
  EXPECT_EQ(std::max(sent_to_b, sent_to_c), kStart + 1000 * kMs);
}

TEST_F(EmulatedLinkTest, ThePassiveEstimatesAreThoseOfTheEmulatedLink) {
  Mailbox inbox;
  inbox.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(500)).ok());
  RunUntil(inbox, 1);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(1)).ok());
  RunUntil(inbox, 2);
  EXPECT_NEAR(a_->stats("b").bandwidth_bytes_per_s, 1e6, 1e3);
  EXPECT_NEAR(a_->stats("b").rtt_s, 2 * 0.041, 1e-6);
}

TEST_F(EmulatedLinkTest, ALinkThatGetsSlowerIsSeenBySmallMessages) {
  Mailbox inbox;
  inbox.Listen(*b_);
  ASSERT_TRUE(a_->Send("b", {}, Lasting(500)).ok());
  RunUntil(inbox, 1);
  ASSERT_TRUE(buckets_->SetRate(*buckets_->Find("out"), 0.25e6).ok());
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(a_->Send("b", {}, Lasting(10)).ok());  // of 10 kB
    RunUntil(inbox, 2 + i);
  }
  EXPECT_NEAR(a_->stats("b").bandwidth_bytes_per_s, 0.25e6, 0.01e6);
}

// Labels beside activations, say.
TEST_F(EmulatedLinkTest, ASmallMessageThatLetAnotherLinkPassSaysLittleOfTheRate) {
  auto c = Make("c", {});
  Mailbox at_b, at_c;
  at_b.Listen(*b_);
  at_c.Listen(*c);
  for (int i = 1; i <= 64; ++i) {
    if (i % 8 == 0) {
      ASSERT_TRUE(a_->Send("c", {}, Lasting(10)).ok());
      RunUntil(at_c, i / 8);
    }
    ASSERT_TRUE(a_->Send("b", {}, Payload::Of(std::string(400, 'x'))).ok());
    RunUntil(at_b, i);
  }
  const LinkStats stats = a_->stats("b");
  EXPECT_GT(stats.bandwidth_bytes_per_s, 0.2e6) << "64 messages of half a millisecond each, eight of which waited ten";
  EXPECT_GT(stats.bandwidth_samples, 0u);
  EXPECT_LT(stats.bandwidth_samples, 64u);
}

TEST_F(EmulatedLinkTest, PeersWithoutAPathAreNotDelayed) {
  Mailbox inbox;
  inbox.Listen(*b_);
  auto broker = Make("broker", {});
  ASSERT_TRUE(broker->Send("b", {}, Lasting(1000)).ok());
  ASSERT_TRUE(inbox.WaitForMessages(1));  // the clock stands still
}

}  // namespace
}  // namespace fusionllm::transport::testing
