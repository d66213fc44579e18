// The selection on the device against a stable sort, both ways that it has, on a card or on the processor in its place.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/compression/cuda/select.h"
#include "lib/compression/select.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/tensor/bf16.h"
#if !defined(CUDART_VERSION)  // the emulated card
#include "lib/compression/cuda/tiles.h"
#include "lib/kernels/cuda/launch.h"
#endif

namespace fusionllm::compression::cuda {
namespace {

using Floats = std::vector<float>;
constexpr SelectionAlgorithm kAlgorithms[] = {SelectionAlgorithm::kSampledThreshold, SelectionAlgorithm::kRadixSelect};
constexpr size_t kGuard = 64;  // bytes before and behind what is written
constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
uint32_t MagnitudeBits(float x) { return BitsOf(x) & 0x7fffffffu; }
std::vector<uint32_t> AllBits(const Floats& values) {
  std::vector<uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), BitsOf);
  return bits;
}

struct Selected {
  std::vector<uint32_t> indices, kept, bitmap, corrected;  // floats as bits
  uint32_t max_magnitude = 0;
  SelectionAlgorithm way = SelectionAlgorithm::kRadixSelect;  // that led to it
  bool operator==(const Selected&) const = default;
};

// The oracle: a stable sort by falling magnitude keeps lower indices first among equals.
Selected BySorting(const Floats& values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return MagnitudeBits(values[a]) > MagnitudeBits(values[b]); });
  Selected selected;
  selected.max_magnitude = MagnitudeBits(values[order[0]]);
  order.resize(k);
  std::sort(order.begin(), order.end());
  selected.bitmap.resize((values.size() + 31) / 32);
  for (const uint32_t i : order) {
    selected.kept.push_back(BitsOf(values[i]));
    selected.bitmap[i / 32] |= 1u << i % 32;
  }
  selected.indices = std::move(order);
  return selected;
}

struct SelectCase {
  std::string name;
  Floats values;
};

Floats DrawNormals(size_t n, const std::string& name) {
  const base::CounterRng rng(5, name);
  Floats values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(rng.Normal(i));
  return values;
}

Floats RoundedToBf16(const Floats& values) {
  std::vector<uint16_t> rounded(values.size());
  Floats wide(values.size());
  tensor::RoundToBf16(values, rounded.data());
  tensor::UpcastBf16(rounded, wide.data());
  return wide;
}

// What a sample has no trouble with, whatever k.
std::vector<SelectCase> OrdinaryCases(size_t n) {
  const Floats normals = DrawNormals(n, "ordinary");
  SelectCase uniform{"uniform", Floats(n)}, heavy{"heavy tails", normals}, rising{"rising", Floats(n)}, falling{"falling", Floats(n)},
      periodic{"every eighth large", normals};
  for (size_t i = 0; i < n; ++i) {
    uniform.values[i] = base::CounterRng(5, "uniform").Uniform(i) - 0.5f;
    heavy.values[i] = std::pow(normals[i], 5.0f);
    rising.values[i] = static_cast<float>(i + 1);
    falling.values[i] = -static_cast<float>(n - i);
    if (i % 8 != 3) periodic.values[i] *= 0.1f;
  }
  return {{"normal", normals}, uniform, heavy, rising, falling, periodic, {"normal in bf16", RoundedToBf16(normals)}};
}

// What it may have.
std::vector<SelectCase> OddCases(size_t n) {
  const Floats normals = DrawNormals(n, "odd");
  SelectCase relu{"half zeros", normals}, sparse{"few that are not 0", Floats(n, -0.0f)}, levels{"few values", normals},
      block{"one block", normals}, gap{"a wide gap", normals}, bad{"neither finite", normals}, tiny{"subnormal", normals},
      wide{"all powers of two", Floats(n)};
  for (size_t i = 0; i < n; ++i) {
    relu.values[i] = std::max(normals[i], 0.0f);
    if (i % 211 == 7) sparse.values[i] = normals[i];
    levels.values[i] = std::round(normals[i]);
    if (i < n / 50) block.values[i] *= 100;
    if (i % 97 == 0) gap.values[i] *= 1e12f;
    if (i % 1999 == 13) bad.values[i] = i % 2 == 0 ? std::nanf("") : -kInfinity;
    tiny.values[i] *= 1e-40f;
    wide.values[i] = std::ldexp(i % 3 == 0 ? -1.25f : 1.75f, static_cast<int>(i * 37 % 240) - 120);
  }
  return {relu, sparse, levels, block, gap, bad, tiny, wide, {"ones", Floats(n, 1.0f)}, {"zeros", Floats(n, 0.0f)}};
}

struct Options {
  SelectionAlgorithm way = SelectionAlgorithm::kSampledThreshold;
  const Floats* residual = nullptr;
  bool feedback = false, bitmap = true;
  size_t shift = 0;  // of the tensor from where 16 bytes begin
};

class CudaSelectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = kernels::cuda::CreateCudaBackend(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(backend.status())) GTEST_SKIP() << backend.status().message();
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  // Device memory of `bytes` with sentinels on both sides.
  class Room {
   public:
    Room(tensor::Memory& memory, size_t bytes, size_t shift = 0) : memory_(memory), begin_(kGuard + shift), bytes_(bytes) {
      const std::vector<std::byte> all(begin_ + bytes + kGuard, std::byte{0xab});
      block_ = *memory.Allocate(all.size());
      EXPECT_TRUE(memory.CopyIn(block_.data(), all.data(), all.size()).ok());
    }
    Room(tensor::Memory& memory, const Floats& values, size_t shift = 0) : Room(memory, 4 * values.size(), shift) {
      EXPECT_TRUE(memory.CopyIn(get<float>(), values.data(), bytes_).ok());
    }
    template <typename T>
    T* get() const {
      return reinterpret_cast<T*>(block_.data() + begin_);
    }
    std::vector<uint32_t> Read() const {
      std::vector<std::byte> all(begin_ + bytes_ + kGuard);
      EXPECT_TRUE(memory_.CopyOut(all.data(), block_.data(), all.size()).ok());
      for (size_t i = 0; i < all.size(); ++i) {
        if (i >= begin_ && i < begin_ + bytes_) continue;
        EXPECT_EQ(all[i], std::byte{0xab}) << "overwritten beside what was to be written";
      }
      std::vector<uint32_t> words(bytes_ / 4);
      std::memcpy(words.data(), all.data() + begin_, 4 * words.size());
      return words;
    }

   private:
    tensor::Memory& memory_;
    const size_t begin_, bytes_;
    tensor::MemoryBlock block_;
  };

  Selected Select(const Floats& values, size_t k, const Options& options) {
    kernels::cuda::Device& device = *kernels::cuda::DeviceOf(*backend_);
    tensor::Memory& memory = backend_->memory();
    const auto n = static_cast<int64_t>(values.size()), kept = static_cast<int64_t>(k);
    const Room tensor(memory, values, options.shift), residual(memory, options.residual == nullptr ? Floats(1) : *options.residual);
    const Room corrected(memory, 4 * values.size()), indices(memory, 4 * k), found(memory, 4 * k);
    const Room bitmap(memory, 4 * ((values.size() + 31) / 32)), max_magnitude(memory, Floats(1, 0.0f));
    // As a workspace may come: with whatever was in it.
    const size_t bytes = SelectionWorkspaceBytes(n, kept, options.way);
    const Room workspace(memory, bytes, 256 - kGuard);
    const Feedback feedback{.residual = options.residual == nullptr ? nullptr : residual.get<float>(),
                            .corrected = options.feedback ? corrected.get<float>() : nullptr};
    EXPECT_EQ(
        cudaSuccess,
        SelectTopK(
            device.stream(), tensor.get<float>(), n, kept, feedback, options.way, workspace.get<std::byte>(), max_magnitude.get<uint32_t>(),
            {.indices = indices.get<uint32_t>(), .kept = found.get<float>(), .bitmap = options.bitmap ? bitmap.get<uint32_t>() : nullptr}));
    EXPECT_EQ(tensor.Read(), AllBits(values));
    Selected selected{.indices = indices.Read(), .kept = found.Read(), .max_magnitude = max_magnitude.Read()[0]};
    selected.way = static_cast<SelectionAlgorithm>(workspace.Read()[0]);
    if (options.bitmap) selected.bitmap = bitmap.Read();
    if (options.feedback) selected.corrected = corrected.Read();
    return selected;
  }

  // Selects, compares with sorting, and says which way it went.
  SelectionAlgorithm ExpectExact(const Floats& values, size_t k, Options options = {}) {
    Floats sums = values;
    for (size_t i = 0; options.residual != nullptr && i < sums.size(); ++i) sums[i] += (*options.residual)[i];
    Selected want = BySorting(sums, k);
    const Selected got = Select(values, k, options);
    if (options.feedback) want.corrected = AllBits(sums);
    if (!options.bitmap) want.bitmap.clear();
    want.way = got.way;
    EXPECT_TRUE(want == got) << "n " << values.size() << ", k " << k << ": the greatest is " << got.max_magnitude << ", not "
                             << want.max_magnitude << "; right indices: " << (want.indices == got.indices)
                             << ", values: " << (want.kept == got.kept) << ", bitmap: " << (want.bitmap == got.bitmap)
                             << ", sums: " << (want.corrected == got.corrected);
    EXPECT_TRUE(got.way == options.way || got.way == SelectionAlgorithm::kRadixSelect);
    return got.way;
  }

  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(CudaSelectTest, KeepsWhatSortingKeeps) {
  for (const size_t n : {1, 2, 31, 33, 257, 4095, 4097, 9001, 32769, 70003}) {
    std::vector<SelectCase> cases = OrdinaryCases(n);
    for (SelectCase& c : OddCases(n)) cases.push_back(std::move(c));
    const size_t some[] = {1, n / 100, n / 7, n - n / 3, n};
    for (size_t i = 0; i < cases.size(); ++i) {
      for (size_t j = 0; j < 2; ++j) {  // sizes in turn: each meets every kind of data somewhere
        const size_t k = std::max<size_t>(1, some[(i + 2 * j) % 5]);
        for (const SelectionAlgorithm way : kAlgorithms) {
          SCOPED_TRACE(absl::StrCat(cases[i].name, way == SelectionAlgorithm::kSampledThreshold ? ", by sample" : ", by digits"));
          ExpectExact(cases[i].values, k, {.way = way, .bitmap = (i + j) % 3 != 0});
        }
      }
    }
  }
}

TEST_F(CudaSelectTest, ASampleDoesForOrdinaryTensors) {
  constexpr size_t kElements = 300007;
  const size_t n = kElements;
  const std::vector<SelectCase> cases = OrdinaryCases(n);
  for (const size_t k : {n / 1000, n / 100, n / 10}) {
    for (const SelectCase& c : cases) EXPECT_EQ(ExpectExact(c.values, k), SelectionAlgorithm::kSampledThreshold) << c.name << ", " << k;
  }
  Floats relu = DrawNormals(n, "relu");
  for (float& x : relu) x = std::max(x, 0.0f);
  EXPECT_EQ(ExpectExact(relu, n / 20), SelectionAlgorithm::kSampledThreshold);
  Floats block = DrawNormals(n, "block");  // all that is kept in a few chunks: no chunk has a limit of its own
  for (size_t i = 90000; i < 96000; ++i) block[i] *= 100;
  EXPECT_EQ(ExpectExact(block, n / 100), SelectionAlgorithm::kSampledThreshold);
}

TEST_F(CudaSelectTest, FallsBackToRadixSelectWhereSampleFails) {
  constexpr size_t kElements = 120001;
  Floats sparse(kElements, 0.0f);
  for (size_t i = 0; i < kElements; i += 1000) sparse[i] = static_cast<float>(i) - 7.0f;
  EXPECT_EQ(ExpectExact(sparse, 500), SelectionAlgorithm::kRadixSelect) << "fewer candidates than are to be kept";
  EXPECT_EQ(ExpectExact(Floats(kElements, -2.5f), 500), SelectionAlgorithm::kRadixSelect) << "more candidates than there is room for";
  Floats levels = DrawNormals(kElements, "levels");
  for (float& x : levels) x = std::round(x);
  EXPECT_EQ(ExpectExact(levels, 1200), SelectionAlgorithm::kRadixSelect) << "more candidates than there is room for";
  Floats gap(kElements, 1.0f);  // the sample's rank lies below a gap, the k-th above
  for (size_t i = 0; i < 1210; ++i) gap[i * 99] = 1e9f + static_cast<float>(1000 * i);
  for (size_t i = 0; i < kElements; ++i) gap[i] *= 1 + static_cast<float>(i % 1009) / 1009;
  EXPECT_EQ(ExpectExact(gap, 1200), SelectionAlgorithm::kRadixSelect) << "too far above the threshold";
  for (const bool with_residual : {false, true}) {
    const Floats residual(kElements, 1.0f);
    EXPECT_EQ(ExpectExact(sparse, 500, {.residual = with_residual ? &residual : nullptr, .feedback = true}),
              SelectionAlgorithm::kRadixSelect);
  }
}

TEST_F(CudaSelectTest, SelectsFromSumsWithFeedback) {
  for (const size_t n : {5, 4096, 50003}) {
    const Floats values = DrawNormals(n, "values");
    Floats residual = DrawNormals(n, "residual");  // what it makes great, the sample must see
    for (size_t i = 0; i < n; i += 3) residual[i] *= 20;
    for (const SelectionAlgorithm way : kAlgorithms) {
      for (const size_t shift : {0, 4}) {
        ExpectExact(values, std::max<size_t>(1, n / 50), {.way = way, .feedback = true, .shift = shift});
        const SelectionAlgorithm gone =
            ExpectExact(values, std::max<size_t>(1, n / 50), {.way = way, .residual = &residual, .feedback = true, .shift = shift});
        EXPECT_TRUE(n < 50000 || gone == way);
      }
    }
  }
}

TEST_F(CudaSelectTest, TakesTensorsThatBeginAnywhere) {
  for (const size_t n : {3, 4099, 40001}) {
    for (const size_t shift : {4, 8, 12}) {
      for (const SelectionAlgorithm way : kAlgorithms)
        ExpectExact(DrawNormals(n, "shifted"), std::max<size_t>(1, n / 30), {.way = way, .shift = shift});
    }
  }
}

TEST_F(CudaSelectTest, TellsWhatIsNotFiniteWhereverItIs) {
  constexpr size_t kElements = 20011;
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{12345}, kElements - 1}) {
    for (const float bad : {std::nanf(""), -kInfinity, 1e37f}) {
      Floats values = DrawNormals(kElements, "bad");
      values[at] = bad;
      for (const SelectionAlgorithm way : kAlgorithms) EXPECT_EQ(Select(values, 200, {.way = way}).max_magnitude, MagnitudeBits(bad));
    }
  }
}

// Each block takes several chunks and tiles, whatever the card.
TEST_F(CudaSelectTest, KeepsWhatSortingKeepsOfGreatTensors) {
  constexpr size_t kElements = 2'400'011;
  const Floats values = RoundedToBf16(DrawNormals(kElements, "great")), residual = RoundedToBf16(DrawNormals(kElements, "residual"));
  EXPECT_EQ(ExpectExact(values, kElements / 250), SelectionAlgorithm::kSampledThreshold);
  EXPECT_EQ(ExpectExact(values, kElements / 50, {.residual = &residual, .feedback = true}), SelectionAlgorithm::kSampledThreshold);
  ExpectExact(values, kElements / 3, {.way = SelectionAlgorithm::kRadixSelect, .residual = &residual, .feedback = true});
}

TEST_F(CudaSelectTest, RepeatsItsBitsBothWays) {
  const Floats values = RoundedToBf16(DrawNormals(100003, "repeated"));  // ties at the k-th
  Selected first = Select(values, 1000, {});
  EXPECT_EQ(first.way, SelectionAlgorithm::kSampledThreshold);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(first == Select(values, 1000, {}));
  Selected digits = Select(values, 1000, {.way = SelectionAlgorithm::kRadixSelect});
  digits.way = first.way;
  EXPECT_TRUE(first == digits);
}

TEST_F(CudaSelectTest, KeepsWhatTheHostKeeps) {
  const Floats values = RoundedToBf16(DrawNormals(60013, "host"));
  SelectionScratch scratch;
  ASSERT_TRUE(compression::SelectTopK(values, 700, &scratch).ok());
  for (const SelectionAlgorithm way : kAlgorithms) EXPECT_EQ(Select(values, 700, {.way = way}).indices, scratch.indices);
}

#if !defined(CUDART_VERSION)

// On the emulated card blocks come one after the other and find the whole sum in the tile before theirs.
void AskForSum(unsigned long long* tiles, uint32_t tile, unsigned long long own, unsigned long long* before) {
  const unsigned long long sum = SumOfTilesBefore(tiles, tile, own);
  before[threadIdx.x] = sum;
}

TEST(SumOfTilesBeforeTest, AddsWhatTilesTellBackToOneThatTellsAll) {
  using Sums = std::vector<unsigned long long>;
  for (const uint32_t tile : {0, 1, 2, 255, 256, 257, 513, 1000}) {
    for (const uint32_t back : {1, 2, 200, 256, 257, 512, 999}) {
      if (back > tile && tile > 0) continue;
      Sums tiles(tile + 1), before(kernels::cuda::kThreads);
      const auto own_of = [](uint32_t i) { return (static_cast<unsigned long long>(i * 7 + 1) << kAboveShift) + i % 5 * 1000000; };
      unsigned long long want = 0;
      for (uint32_t i = 0; i < tile; ++i) {
        want += own_of(i);
        tiles[i] = i == 0 || i == tile - back || i == 3 ? want | kSumThrough : own_of(i) | kOwnSum;
      }
      ASSERT_EQ(cudaSuccess,
                kernels::cuda::Launch(nullptr, 1, kernels::cuda::kThreads, 0, AskForSum, tiles.data(), tile, own_of(tile), before.data()));
      EXPECT_EQ(before, Sums(before.size(), want)) << "tile " << tile << ", and " << back << " before it all are told";
      EXPECT_EQ(tiles[tile], (want + own_of(tile)) | kSumThrough);
    }
  }
}

#endif

TEST(SelectionAlgorithmTest, UsesSampledThresholdWhereItPays) {
  EXPECT_EQ(DefaultAlgorithm(10'000'000, 100'000), SelectionAlgorithm::kSampledThreshold);
  EXPECT_EQ(DefaultAlgorithm(10'000'000, 2'000'000), SelectionAlgorithm::kRadixSelect);
  EXPECT_EQ(DefaultAlgorithm(100'000, 1'000), SelectionAlgorithm::kRadixSelect);
  // Room: 8 bytes for each candidate beside the histograms, sums and stretches.
  EXPECT_LT(SelectionWorkspaceBytes(10'000'000, 100'000), 200'000 + 8 * 160'000);
  EXPECT_LT(SelectionWorkspaceBytes(100'000'000, 100'000), 400'000 + 8 * 380'000);
  EXPECT_LT(SelectionWorkspaceBytes(100'000'000, 100'000'000), 100'000);
}

}  // namespace
}  // namespace fusionllm::compression::cuda
