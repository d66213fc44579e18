// Printing and reading are inverse for every job and topology.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/job/document.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/job/parse.h"
#include "lib/job/reader.h"
#include "lib/job/topology_fields.h"

namespace fusionllm::job {
namespace {

class Draw {
 public:
  Draw(uint64_t seed, absl::string_view name) : rng_(seed, name) {}
  uint64_t Below(uint64_t bound) { return rng_.Below(next_++, bound); }
  bool Coin() { return Below(2) == 1; }

 private:
  base::CounterRng rng_;
  uint64_t next_ = 0;
};

// Visitor that fills every field at random within its rule.
class Filler {
 public:
  static constexpr bool kFillsIn = true;
  explicit Filler(Draw& draw) : draw_(draw) {}

  void Constant(absl::string_view, absl::string_view) {}

  template <class T>
  void Field(absl::string_view, T& value, const Rule& rule, absl::string_view) {
    if (rule.applies) Fill(value, rule);
  }

 private:
  template <class T>
  void Fill(std::optional<T>& value, const Rule& rule) {
    value.reset();
    if (draw_.Coin()) Fill(value.emplace(), rule);
  }
  template <class T>
  void Fill(std::vector<T>& values, const Rule& rule) {
    values.assign(draw_.Below(4) + (rule.required ? 1 : 0), T{});
    for (T& value : values) Fill(value, rule);
  }
  void Fill(bool& value, const Rule&) { value = draw_.Coin(); }
  void Fill(int64_t& value, const Rule& rule) {
    const auto low = static_cast<int64_t>(rule.min), high = static_cast<int64_t>(rule.max);
    const int64_t spread = std::max<int64_t>(1, (high - low) >> draw_.Below(50));
    value = rule.zero_is_auto && draw_.Below(4) == 0 ? 0 : low + static_cast<int64_t>(draw_.Below(static_cast<uint64_t>(spread)));
  }
  void Fill(double& value, const Rule& rule) {
    value = rule.min + (rule.max - rule.min) *
                           std::ldexp(static_cast<double>(draw_.Below(uint64_t{1} << 32) + 1), -33 - static_cast<int>(draw_.Below(60)));
  }
  void Fill(std::string& value, const Rule& rule) {
    static const std::vector<std::string> kNasty = {
        "true",       "null", "~",        "1.5",       "1f1b", "- a", "a: b", "#x",    "'",   "\"",   "\\",       "a\nb",         " a ",
        "{x}",        "[y]",  "*a",       "&b",        "!t",   "%d",  "@",    "`",     "|\n", "\t",   "no",       "0x1F",         "1e3",
        "2020-01-01", ".inf", "\x01\x7f", "é漢🙂", "?",    "<<",  "a b",  "?x: y", "---", "\r\n", "\xC2\x85", "a\xE2\x80\xA8"};
    value = rule.name ? absl::StrCat("n", draw_.Below(1000)) : kNasty[draw_.Below(kNasty.size())];
  }
  void Fill(Bandwidth& value, const Rule&) {
    value.bits_per_s = 1 + static_cast<int64_t>(draw_.Below(uint64_t{1} << (1 + draw_.Below(40))));
  }
  void Fill(ByteSize& value, const Rule&) { value.bytes = static_cast<int64_t>(draw_.Below(uint64_t{1} << (1 + draw_.Below(50)))); }
  void Fill(Duration& value, const Rule&) { value.ns = static_cast<int64_t>(draw_.Below(uint64_t{1} << (1 + draw_.Below(40)))); }
  void Fill(RawExtension& value, const Rule&) {
    value.json = draw_.Coin() ? "" : draw_.Coin() ? "{}" : R"({"a b": {"c": [1, -2.5e-07, "x\n\"y\\", null, true, "true"]}, "": {}})";
  }
  template <class T>
  void Fill(T& value, const Rule&) {
    if constexpr (kIsEnum<T>) {
      value = EnumNames<T>::Names()[draw_.Below(EnumNames<T>::Names().size())].second;
    } else {
      Visit(*this, value);
    }
  }

  Draw& draw_;
};

// Without the rules over several fields, which a random job would break.
template <class T>
T ReadBack(const std::string& yaml) {
  Problems problems("printed.yaml");
  Node root;
  EXPECT_TRUE(LoadDocument(yaml, root, problems)) << problems.ToStatus() << yaml;
  T value;
  Reader(root, problems).ReadObject(value);
  EXPECT_TRUE(problems.empty()) << problems.ToStatus() << yaml;
  return value;
}

TEST(JobRoundTripTest, EveryJobReadsBackAsItIsPrinted) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed, "job");
    FusionJob job;
    Filler filler(draw);
    Visit(filler, job);
    EXPECT_TRUE(ReadBack<FusionJob>(ToYaml(job)) == job) << "seed " << seed << "\n" << ToYaml(job);
    if (HasFailure()) break;
  }
}

TEST(JobRoundTripTest, EveryTopologyReadsBackAsItIsPrinted) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed, "topology");
    Topology topology;
    Filler filler(draw);
    Visit(filler, topology);
    EXPECT_TRUE(ReadBack<Topology>(ToYaml(topology)) == topology) << "seed " << seed << "\n" << ToYaml(topology);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace fusionllm::job
