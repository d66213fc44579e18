#include "lib/base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

TEST(AllowedMemory, IsTheMachinesUnlessItsContainerHasLess) {
  const TempFolder folder;
  const int64_t all = AllowedMemoryBytes(folder.path());
  EXPECT_GT(all, int64_t{1} << 26);
  folder.Write("memory.max", "268435456\n");
  EXPECT_EQ(AllowedMemoryBytes(folder.path()), 268435456);
  for (const char* none : {"max\n", "9223372036854771712\n", "-1\n", ""}) {
    folder.Write("memory.max", none);
    EXPECT_EQ(AllowedMemoryBytes(folder.path()), all) << none;
  }
  const TempFolder first_version;
  first_version.Write("memory/memory.limit_in_bytes", "268435456\n");
  EXPECT_EQ(AllowedMemoryBytes(first_version.path()), 268435456);
}

TEST(AllowedMemory, IsNoMoreThanALimitOfAddresses) {
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "this process has a limit already";
  rlimit limited = before;
  limited.rlim_cur = rlim_t{1} << 40;
  const int64_t all = AllowedMemoryBytes(folder.path());
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  EXPECT_EQ(AllowedMemoryBytes(folder.path()), std::min(all, int64_t{1} << 40));
  limited.rlim_cur = rlim_t{60} << 20;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const int64_t allowed = AllowedMemoryBytes(folder.path());
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(allowed, int64_t{60} << 20);
}

}  // namespace
}  // namespace fusionllm::base
