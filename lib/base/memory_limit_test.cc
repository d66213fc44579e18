#include "lib/base/memory_limit.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fusionllm::base
