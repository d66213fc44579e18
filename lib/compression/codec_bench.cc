// Speed of each codec, one core. bytes_per_second counts dense fp32 bytes; compare with Read, one pass over the same array.
#include <random>

#include "benchmark/benchmark.h"
#include "lib/compression/codec.h"
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

constexpr const char* kSpecs[] = {"fp32",         "fp16",          "bf16",           "int8",        "int4",
                                  "topk@10:int8", "topk@100:int8", "topk@1000:int8", "topk@4:int8", "topk@4:int4"};

std::vector<float> Normal(size_t n) {
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(rng);
  return values;
}

void Finish(benchmark::State& state, const char* label) {
  state.SetLabel(label);
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

void Read(benchmark::State& state) {
  const auto values = Normal(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(MaxMagnitude(values.data(), values.size()));
  Finish(state, "one read pass");
}
BENCHMARK(Read)->Arg(100'000)->Arg(1'000'000)->Arg(10'000'000);

// warm: the encoder's state lives on, as in training; cold: every message samples its threshold.
void EncodeForward(benchmark::State& state, bool warm) {
  const char* text = kSpecs[state.range(1)];
  const CodecSpec spec = *ParseCodecSpec(text);
  const auto values = Normal(state.range(0));
  std::vector<std::byte> message;
  Mask mask;
  EncoderState encoder;
  for (auto _ : state) {
    if (!warm) encoder.selection.last_threshold = 0;
    if (!Encode(spec, Direction::kForward, values, nullptr, &encoder, &message, &mask).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(message.data());
  }
  Finish(state, text);
  state.counters["ratio"] = 4.0 * static_cast<double>(values.size()) / static_cast<double>(message.size());
}
BENCHMARK_CAPTURE(EncodeForward, warm, true)->ArgsProduct({{100'000, 1'000'000, 10'000'000}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
BENCHMARK_CAPTURE(EncodeForward, cold, false)->ArgsProduct({{100'000, 1'000'000, 10'000'000}, {5, 6, 7, 8, 9}});

void DecodeForward(benchmark::State& state) {
  const char* text = kSpecs[state.range(1)];
  const auto values = Normal(state.range(0));
  std::vector<std::byte> message;
  if (!Encode(*ParseCodecSpec(text), Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok()) return;
  std::vector<float> out(values.size());
  Mask mask;
  for (auto _ : state) {
    if (!Decode(Direction::kForward, message, nullptr, out, &mask).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(out.data());
  }
  Finish(state, text);
}
BENCHMARK(DecodeForward)->ArgsProduct({{100'000, 1'000'000, 10'000'000}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});

// What the guard does with a sampled message.
void DecodeAndCompare(benchmark::State& state) {
  const char* text = kSpecs[state.range(1)];
  const auto values = Normal(state.range(0));
  std::vector<std::byte> message;
  std::vector<float> out(values.size());
  if (!Encode(*ParseCodecSpec(text), Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok()) return;
  for (auto _ : state) {
    if (!Decode(Direction::kForward, message, nullptr, out, nullptr).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(CompareTensors(values, out));
  }
  Finish(state, text);
}
BENCHMARK(DecodeAndCompare)->ArgsProduct({{100'000, 1'000'000}, {3, 4, 6, 8, 9}});

void MaskedGradient(benchmark::State& state) {
  const char* text = kSpecs[state.range(1)];
  const CodecSpec spec = *ParseCodecSpec(text);
  const auto values = Normal(state.range(0));
  std::vector<std::byte> message;
  Mask mask;
  EncoderState encoder;
  if (!Encode(spec, Direction::kForward, values, nullptr, nullptr, &message, &mask).ok()) return;
  for (auto _ : state) {
    if (!Encode(spec, Direction::kBackward, values, &mask, &encoder, &message, nullptr).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(message.data());
  }
  Finish(state, text);
}
BENCHMARK(MaskedGradient)->ArgsProduct({{10'000'000}, {5, 6, 7, 8, 9}});

}  // namespace
}  // namespace fusionllm::compression
