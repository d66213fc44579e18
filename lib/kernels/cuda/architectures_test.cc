#include "lib/kernels/cuda/architectures.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::kernels::cuda {
namespace {

TEST(ArchitecturesTest, MachineCodeRunsOnItsMajorNumberFromItsMinorNumberOn) {
  EXPECT_TRUE(CheckArchitecture("80-real", 8, 0).ok());
  EXPECT_TRUE(CheckArchitecture("80-real", 8, 9).ok());
  EXPECT_FALSE(CheckArchitecture("80-real", 9, 0).ok());
  EXPECT_FALSE(CheckArchitecture("86-real", 8, 0).ok());
  EXPECT_FALSE(CheckArchitecture("80-real", 7, 5).ok());
}

TEST(ArchitecturesTest, PtxRunsOnWhatIsNewer) {
  EXPECT_TRUE(CheckArchitecture("80-real 90", 10, 0).ok());
  EXPECT_TRUE(CheckArchitecture("90-virtual", 12, 0).ok());
  EXPECT_FALSE(CheckArchitecture("90-virtual", 8, 9).ok());
}

TEST(ArchitecturesTest, ArchitectureSpecificCodeRunsOnItsOwnAlone) {
  EXPECT_TRUE(CheckArchitecture("90a", 9, 0).ok());
  EXPECT_FALSE(CheckArchitecture("90a", 10, 0).ok());
}

TEST(ArchitecturesTest, TheErrorSaysWhatThereIsAndWhatToDo) {
  EXPECT_EQ(CheckArchitecture("80-real 90", 7, 5).message(),
            "has compute capability 7.5, and this build has machine code for 8.0, machine code for 9.0, PTX of 9.0: build with "
            "-DCMAKE_CUDA_ARCHITECTURES=75, or run on the CPU (--device cpu)");
}

TEST(ArchitecturesTest, WordsThatNameNoneRefuseNothing) {
  EXPECT_TRUE(CheckArchitecture("native", 7, 5).ok());
  EXPECT_TRUE(CheckArchitecture("", 7, 5).ok());
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
