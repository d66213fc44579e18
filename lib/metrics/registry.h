// The metrics of one process, in the terms of Prometheus: families of counters, gauges and histograms, each with a fixed list of labels.
//
// A Registry is made once for a process; each module that has something to tell makes a metrics object, which declares its families here
// and feeds them. A series appears with its first value, so what was never measured is not exported as zero. Names get the prefix
// "fusionllm_", unless they are of a vocabulary that others' dashboards know, and are in base units (seconds, bytes, ratios of 0 to 1
// unless said). Labels name what a run has few of (devices, stages, links), and a process that serves one run ends with it, its series too;
// within a run, Clear() drops those of stages and links that are no more.
//
// Thread-safe. Families live as long as the registry. At most kMaxSeries series a family: further ones are not kept.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fusionllm::metrics {

inline constexpr size_t kMaxSeries = 20'000;

enum class Kind { kCounter, kGauge, kHistogram };
const char* Name(Kind kind);

struct FamilySpec {
  std::string name;  // without the prefix
  std::string help;  // one sentence: what it is and how it is counted
  std::vector<std::string> labels = {};
  std::string prefix = "fusionllm_";  // another for names that are not ours to choose: "workqueue_"
};

// As exported: name with its prefix.
struct FamilyInfo {
  std::string name;
  Kind kind = Kind::kGauge;
  std::vector<std::string> labels;
  std::string help;
  bool operator==(const FamilyInfo&) const = default;
};

// In the order of FamilySpec::labels; as many, or the program ends.
using LabelValues = std::vector<std::string>;

class Gauge {
 public:
  void Set(double value, const LabelValues& labels = {}) const;
  void Add(double change, const LabelValues& labels = {}) const;
  void Clear() const;                            // all series
  void Remove(const LabelValues& labels) const;  // one series, if it is there

  struct Series;

 private:
  friend class Registry;
  explicit Gauge(Series* series) : series_(series) {}
  Series* series_;
};

class Counter {
 public:
  void Add(double amount, const LabelValues& labels = {}) const;  // amount >= 0
  // For what somebody else counts: to `total`, if that is more.
  void IncreaseTo(double total, const LabelValues& labels = {}) const;
  void Remove(const LabelValues& labels) const;  // one series, if it is there: of something that is no more

  struct Series;

 private:
  friend class Registry;
  explicit Counter(Series* series) : series_(series) {}
  Series* series_;
};

class Histogram {
 public:
  void Observe(double value, const LabelValues& labels = {}) const;
  // Without any observation yet: the first one is a rise that can be seen.
  void InitializeToZero(const LabelValues& labels = {}) const;

  struct Series;

 private:
  friend class Registry;
  explicit Histogram(Series* series) : series_(series) {}
  Series* series_;
};

// `count` upper bounds, each `factor` times the one before.
std::vector<double> ExponentialBuckets(double first, double factor, int count);

class Registry {
 public:
  // Exports build_info{program, version} = 1.
  Registry(const std::string& program, const std::string& version);
  ~Registry();

  // A name may be declared once.
  Gauge AddGauge(const FamilySpec& spec);
  Counter AddCounter(const FamilySpec& spec);
  Histogram AddHistogram(const FamilySpec& spec, std::vector<double> buckets);

  // Called before each Text(), on its thread: for values that change by themselves, such as ages. Whatever it captures must outlive the
  // last Text().
  void OnCollect(std::function<void()> refresh);

  // A gauge of which nothing is kept here: `read` is called in each Text(), on its thread, and tells all series there are, each once. For
  // thousands of series whose values are had elsewhere: a kept one takes some 800 bytes. As OnCollect() for what it captures.
  using Emit = std::function<void(double value, const LabelValues& labels)>;
  void AddCallbackGauge(const FamilySpec& spec, std::function<void(const Emit& emit)> read);

  // All series in the Prometheus text format, version 0.0.4.
  std::string Text();
  // All families declared, by name, whether they have series or not.
  std::vector<FamilyInfo> Families() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace fusionllm::metrics
