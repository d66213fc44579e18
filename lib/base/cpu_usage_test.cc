#include "lib/base/cpu_usage.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

class CpuUsageTest : public ::testing::Test {
 protected:
  // Busy seconds of two cores together: user, system and steal; idle ones do not count.
  void Machine(double user_s, double system_s, double steal_s) {
    const auto ticks = [](double seconds) { return static_cast<long>(seconds * static_cast<double>(sysconf(_SC_CLK_TCK))); };
    proc_.Write("stat", absl::StrCat("cpu  ", ticks(user_s), " 0 ", ticks(system_s), " 12345 99 0 0 ", ticks(steal_s),
                                     " 7 7\ncpu0 1 2 3 4 5 6 7 8 9 0\ncpu1 1 2 3 4 5 6 7 8 9 0\nintr 4711\n"));
  }
  void Child(pid_t pid, double user_s) {
    const auto ticks = static_cast<long>(user_s * static_cast<double>(sysconf(_SC_CLK_TCK)));
    proc_.Write(absl::StrCat(pid, "/stat"), absl::StrCat(pid, " (a (name) 1) S 1 1 1 0 -1 0 1 2 3 4 ", ticks, " 0 0 0 20 0 1 0\n"));
  }
  CpuUsageMeter Meter() {
    return CpuUsageMeter({.proc_folder = proc_.path(), .now_s = [this] { return now_s_; }, .own_s = [this] { return own_s_; }});
  }

  const TempFolder proc_;
  double now_s_ = 100, own_s_ = 5;
};

TEST_F(CpuUsageTest, OthersAreWhatTheMachineDidLessWhatWeDid) {
  Machine(1000, 100, 0);
  Child(77, 3);
  proc_.Write("loadavg", "7.20 5.00 3.00 9/200 4711\n");
  CpuUsageMeter meter = Meter();
  const pid_t child = 77;
  meter.Restart({&child, 1});
  now_s_ += 10;
  own_s_ += 1;
  Child(77, 5);
  Machine(1016, 102, 1);  // 19 in all, 3 of them ours
  const auto use = meter.Read({&child, 1});
  ASSERT_TRUE(use);
  EXPECT_NEAR(use->others, 1.6, 1e-9);
  EXPECT_EQ(use->cores, 2);
  EXPECT_EQ(
      BusySentence(*use),
      "this machine is busy: other programs use 1.6 of its 2 cores (load 7.2); times measured now are longer than on an idle machine");
  EXPECT_EQ(OthersUsed(*use), "other programs used 1.6 of this machine's 2 cores");
}

TEST_F(CpuUsageTest, NothingIsKnownOfATooShortTimeOrWithoutProc) {
  Machine(1000, 100, 0);
  const CpuUsageMeter meter = Meter();
  EXPECT_FALSE(meter.Read());
  now_s_ += 1;
  EXPECT_TRUE(meter.Read());
  EXPECT_FALSE(CpuUsageMeter({.proc_folder = proc_ / "none", .now_s = [this] { return now_s_++; }}).Read());
}

TEST(CpuUsage, AMachineIsBusyForWhomItLeavesTooLittle) {
  const CpuUsage use{.others = 1, .cores = 2};
  EXPECT_TRUE(IsBusy(use, 2));
  EXPECT_FALSE(IsBusy(use, 1)) << "there is a core for one";
  EXPECT_TRUE(IsBusy(use, 64)) << "nobody can have more than there are";
  EXPECT_FALSE(IsBusy({.others = 0.3, .cores = 2}, 2));
  EXPECT_FALSE(IsBusy({.others = 40, .cores = 64}, 2)) << "of a container that may use two";
}

TEST(CpuUsage, AContainersLimitCountsAsItsCores) {
  const TempFolder folder;
  const double all = AllowedCores(folder.path());
  EXPECT_GE(all, 1);
  folder.Write("cpu.max", "50000 100000\n");
  EXPECT_EQ(AllowedCores(folder.path()), 0.5);
  folder.Write("cpu.max", "max 100000\n");
  EXPECT_EQ(AllowedCores(folder.path()), all);
  const TempFolder first_version;
  first_version.Write("cpu/cpu.cfs_quota_us", "50000\n");
  first_version.Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AllowedCores(first_version.path()), 0.5);
  first_version.Write("cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(AllowedCores(first_version.path()), all);
}

}  // namespace
}  // namespace fusionllm::base
