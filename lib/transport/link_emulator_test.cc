#include "lib/transport/link_emulator.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/transport/testing/fake_clock.h"

namespace fusionllm::transport {
namespace {

using ::testing::HasSubstr;
using testing::kMs;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "fusionllm-buckets-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::shared_ptr<SharedBuckets> Buckets(std::vector<BucketSpec> specs) { return *SharedBuckets::InMemory(specs); }

LinkEmulator Emulator(std::shared_ptr<SharedBuckets> buckets, const EmulatedPath& path, uint64_t seed = 1) {
  auto emulator = LinkEmulator::Create(std::move(buckets), path, seed, "a->b");
  EXPECT_TRUE(emulator.ok()) << emulator.status();
  return *emulator;
}

TEST(SharedBuckets, BytesPassOneAfterTheOtherAtTheRate) {
  auto buckets = Buckets({{"l", 1e6}});
  EXPECT_EQ(buckets->Reserve(0, 100 * kMs, 5000), 105 * kMs);
  EXPECT_EQ(buckets->Reserve(0, 100 * kMs, 1000), 106 * kMs);
  EXPECT_EQ(buckets->Reserve(0, 200 * kMs, 1000), 201 * kMs);  // idle time is not saved up
  ASSERT_TRUE(buckets->SetRate(0, 5e5).ok());
  EXPECT_EQ(buckets->Reserve(0, 0, 1000), 203 * kMs);
}

TEST(SharedBuckets, TwoProcessesViewsOfOneFileShareTheRateExactly) {
  const TemporaryFolder folder;
  const std::vector<BucketSpec> specs = {{"other", 1e9}, {"link:paris->tokyo", 1e6}};
  auto mine = SharedBuckets::Create(folder / "links", specs);
  ASSERT_TRUE(mine.ok()) << mine.status();
  auto yours = SharedBuckets::Open(folder / "links");
  ASSERT_TRUE(yours.ok()) << yours.status();
  ASSERT_EQ((*yours)->Find("link:paris->tokyo").value(), 1u);
  constexpr int kReservations = 20'000;
  int64_t last[2] = {};
  std::thread other([&] {
    for (int i = 0; i < kReservations; ++i) last[1] = (*yours)->Reserve(1, 0, 7);
  });
  for (int i = 0; i < kReservations; ++i) last[0] = (*mine)->Reserve(1, 0, 7);
  other.join();
  EXPECT_EQ(std::max(last[0], last[1]), 2 * kReservations * 7 * 1000);
  struct stat info;
  ASSERT_EQ(stat((folder / "links").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(SharedBuckets, BadSpecsAndFilesAreRefusedByName) {
  const auto refuse = [](std::vector<BucketSpec> specs) { return std::string(SharedBuckets::InMemory(specs).status().message()); };
  EXPECT_THAT(refuse({{"l", 0}}), HasSubstr("bucket l"));
  EXPECT_THAT(refuse({{"l", std::nan("")}}), HasSubstr("bucket l"));
  EXPECT_THAT(refuse({{"l", 1}, {"l", 1}}), HasSubstr("twice"));
  EXPECT_THAT(refuse({{std::string(496, 'x'), 1}}), HasSubstr("496"));
  const TemporaryFolder folder;
  EXPECT_EQ(SharedBuckets::Open(folder / "absent").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(folder / "short") << "x";
  EXPECT_EQ(SharedBuckets::Open(folder / "short").status().code(), absl::StatusCode::kDataLoss);
  std::ofstream(folder / "noise") << std::string(5000, 'x');
  EXPECT_EQ(SharedBuckets::Open(folder / "noise").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Buckets({{"l", 1}})->Find("m").status().code(), absl::StatusCode::kNotFound);
}

TEST(LinkEmulator, ASliceArrivesAfterItsOwnTimeOnTheWireAndTheLatency) {
  LinkEmulator link = Emulator(Buckets({{"l", 1e6}}), {.buckets = {"l"}, .latency_ns = 40 * kMs});
  const LinkEmulator::Transit passage = link.Pass(10 * kMs, 20'000);
  EXPECT_EQ(passage.sent_ns, 30 * kMs);
  EXPECT_EQ(passage.arrival_ns, 70 * kMs);
}

TEST(LinkEmulator, TheSlowestBucketOfAPathSetsThePace) {
  auto buckets = Buckets({{"port", 1e8}, {"uplink", 2e6}, {"link", 1e6}});
  LinkEmulator link = Emulator(buckets, {.buckets = {"port", "uplink", "link"}});
  int64_t ready = 0;
  for (int i = 0; i < 10; ++i) ready = link.Pass(ready, 1000).sent_ns;
  EXPECT_EQ(ready, 10 * kMs);
  // What it leaves of the uplink another link of the same site can use.
  LinkEmulator other = Emulator(buckets, {.buckets = {"uplink"}});
  EXPECT_LE(other.Pass(10 * kMs, 1000).sent_ns, 11 * kMs);
}

TEST(LinkEmulator, TwoSendersThroughOneBucketGetHalfEach) {
  auto buckets = Buckets({{"link", 1e6}});
  LinkEmulator a = Emulator(buckets, {.buckets = {"link"}}), b = Emulator(buckets, {.buckets = {"link"}});
  int64_t ready_a = 0, ready_b = 0;
  int sent_a = 0, sent_b = 0;
  while (std::min(ready_a, ready_b) < 1000 * kMs) {
    if (ready_a <= ready_b) {
      ready_a = a.Pass(ready_a, 1000).sent_ns;
      ++sent_a;
    } else {
      ready_b = b.Pass(ready_b, 1000).sent_ns;
      ++sent_b;
    }
  }
  EXPECT_NEAR(sent_a, 500, 2);
  EXPECT_NEAR(sent_b, 500, 2);
}

TEST(LinkEmulator, JitterSpreadsArrivalsOverItsRange) {
  LinkEmulator link = Emulator(Buckets({}), {.latency_ns = 10 * kMs, .jitter_ns = 4 * kMs});
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const LinkEmulator::Transit passage = link.Pass(0, 1000);
    EXPECT_EQ(passage.sent_ns, 0);
    EXPECT_GE(passage.arrival_ns, 10 * kMs);
    EXPECT_LT(passage.arrival_ns, 14 * kMs);
    sum += static_cast<double>(passage.arrival_ns);
  }
  EXPECT_NEAR(sum / 1000, 12 * kMs, 0.2 * kMs);  // the mean of 1000 uniform draws is 0.037 ms off by one standard deviation
}

TEST(LinkEmulator, LostPacketsAreSentAgainAndCostARoundTrip) {
  constexpr int kSlices = 20'000;
  LinkEmulator link = Emulator(Buckets({{"l", 1e9}}), {.buckets = {"l"}, .latency_ns = 5 * kMs, .loss = 0.1});
  int64_t ready = 0;
  int late = 0;
  for (int i = 0; i < kSlices; ++i) {
    const LinkEmulator::Transit passage = link.Pass(ready, 1448);
    ready = passage.sent_ns;
    const int64_t delay = passage.arrival_ns - passage.sent_ns;
    EXPECT_EQ((delay - 5 * kMs) % (10 * kMs), 0);
    late += delay > 5 * kMs ? 1 : 0;
  }
  EXPECT_NEAR(late, kSlices * 0.1, 4 * 43);                                        // binomial: standard deviation 42.4
  EXPECT_NEAR(static_cast<double>(ready), kSlices * 1448.0 / 0.9, 4 * 50 * 1448);  // 1 / (1 - loss) transmissions each
}

TEST(LinkEmulator, ASeedRepeatsItsRandomness) {
  const EmulatedPath path{.jitter_ns = 1000 * kMs};
  LinkEmulator a = Emulator(Buckets({}), path, 7), b = Emulator(Buckets({}), path, 7), c = Emulator(Buckets({}), path, 8);
  const int64_t first = a.Pass(0, 1).arrival_ns;
  EXPECT_EQ(first, b.Pass(0, 1).arrival_ns);
  EXPECT_NE(first, c.Pass(0, 1).arrival_ns);
}

TEST(LinkEmulator, NonsenseIsRefused) {
  auto buckets = Buckets({});
  EXPECT_FALSE(LinkEmulator::Create(buckets, {.loss = 1}, 0, "x").ok());
  EXPECT_FALSE(LinkEmulator::Create(buckets, {.latency_ns = -1}, 0, "x").ok());
  EXPECT_EQ(LinkEmulator::Create(buckets, {.buckets = {"none"}}, 0, "x").status().code(), absl::StatusCode::kNotFound);
}

TEST(LinkEmulator, SlicesPassInAFewMilliseconds) {
  EXPECT_EQ(Emulator(Buckets({{"l", 1e6}}), {.buckets = {"l"}}).slice_bytes(), 16u << 10);
  EXPECT_EQ(Emulator(Buckets({{"l", 1e7}, {"m", 1e9}}), {.buckets = {"l", "m"}}).slice_bytes(), 40'000u);
  EXPECT_EQ(Emulator(Buckets({}), {}).slice_bytes(), 256u << 10);
}

}  // namespace
}  // namespace fusionllm::transport
