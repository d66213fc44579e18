#include "lib/daemon/process_metrics.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fusionllm::daemon {
namespace {

class ProcessMetricsTest : public ::testing::Test {
 protected:
  ProcessMetricsTest() { AddProcessMetrics(registry_); }
  double Value(const std::string& name) {
    const std::string text = registry_.Text(), line = "\n" + name + " ";
    const size_t at = text.find(line);
    double value = -1;
    if (at == std::string::npos || !absl::SimpleAtod(text.substr(at + line.size(), text.find('\n', at + 1) - at - line.size()), &value)) {
      ADD_FAILURE() << name << " is missing in\n" << text;
    }
    return value;
  }
  metrics::Registry registry_{"test", "0"};
};

TEST_F(ProcessMetricsTest, MemoryIsThatOfTheProcess) {
  const double before = Value("process_resident_memory_bytes");
  EXPECT_GT(before, 1 << 20);
  EXPECT_GE(Value("process_virtual_memory_bytes"), before);
  constexpr size_t kBytes = 32 << 20;
  const std::vector<char> block(kBytes, 1);
  EXPECT_GT(Value("process_resident_memory_bytes"), before + kBytes / 2.0) << block[kBytes / 2];
}

TEST_F(ProcessMetricsTest, TimeOfTheProcessorGrowsWithWork) {
  const double before = Value("process_cpu_seconds_total");
  double sum = 0;
  do {
    for (int i = 1; i < 1'000'000; ++i) sum += 1.0 / i;
  } while (Value("process_cpu_seconds_total") <= before);
  EXPECT_GT(sum, 0);
}

TEST_F(ProcessMetricsTest, OpenFilesAreCounted) {
  const double before = Value("process_open_fds");
  std::FILE* const file = std::fopen("/dev/null", "r");
  EXPECT_EQ(Value("process_open_fds"), before + 1);
  std::fclose(file);
  EXPECT_EQ(Value("process_open_fds"), before);
  EXPECT_GE(Value("process_max_fds"), before);
}

TEST_F(ProcessMetricsTest, ItBeganNow) {
  EXPECT_NEAR(Value("process_start_time_seconds"), absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()), 60);
}

}  // namespace
}  // namespace fusionllm::daemon
