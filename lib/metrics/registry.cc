#include "lib/metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "lib/base/mutex.h"

namespace fusionllm::metrics {
namespace {

[[noreturn]] void Die(const std::string& family, const char* what) {
  std::fprintf(stderr, "metrics: family %s: %s\n", family.c_str(), what);
  std::abort();
}

// A family of prometheus-cpp with the series made so far.
template <class T>
class SeriesMap {
 public:
  SeriesMap(prometheus::Family<T>& family, std::vector<std::string> labels) : family_(family), labels_(std::move(labels)) {}

  // Runs `use` on the series, which is made with `arguments` if it is new.
  template <class Use, class... Arguments>
  void With(const LabelValues& values, const Use& use, const Arguments&... arguments) {
    if (values.size() != labels_.size()) Die(family_.GetName(), "a value for each label is wanted");
    const base::MutexLock lock(mutex_);
    auto found = series_.find(values);
    if (found == series_.end()) {
      if (series_.size() >= kMaxSeries) return;
      prometheus::Labels labels;
      for (size_t i = 0; i < values.size(); ++i) labels[labels_[i]] = values[i];
      found = series_.emplace(values, &family_.Add(labels, arguments...)).first;
    }
    use(*found->second);
  }

  void Clear() {
    const base::MutexLock lock(mutex_);
    for (const auto& [values, series] : series_) family_.Remove(series);
    series_.clear();
  }

  void Remove(const LabelValues& values) {
    const base::MutexLock lock(mutex_);
    const auto found = series_.find(values);
    if (found == series_.end()) return;
    family_.Remove(found->second);
    series_.erase(found);
  }

 private:
  prometheus::Family<T>& family_;
  const std::vector<std::string> labels_;
  base::Mutex mutex_;
  std::map<LabelValues, T*> series_ ABSL_GUARDED_BY(mutex_);
};

// A gauge that is read when it is wanted.
struct ReadGauge {
  FamilyInfo info;
  std::vector<size_t> order;  // of the labels in the text: by name, as in all other families
  std::function<void(const Registry::Emit&)> read;
};

void AppendEscaped(const std::string& value, std::string& text) {
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
}

// Its series go into the text one by one, so that to tell thousands takes no more memory than their lines.
void AppendText(const ReadGauge& gauge, std::string& text) {
  size_t series = 0;
  gauge.read([&](double value, const LabelValues& labels) {
    if (labels.size() != gauge.order.size()) Die(gauge.info.name, "a value for each label is wanted");
    if (series++ >= kMaxSeries) return;
    if (series == 1) text += "# HELP " + gauge.info.name + " " + gauge.info.help + "\n# TYPE " + gauge.info.name + " gauge\n";
    text += gauge.info.name;
    char before = '{';
    for (const size_t label : gauge.order) {
      text += before + gauge.info.labels[label] + "=\"";
      AppendEscaped(labels[label], text);
      text += '"';
      before = ',';
    }
    text += gauge.order.empty() ? " " : "} ";
    char digits[32];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    text += '\n';
  });
}

}  // namespace

struct Gauge::Series : SeriesMap<prometheus::Gauge> {
  using SeriesMap::SeriesMap;
};
struct Counter::Series : SeriesMap<prometheus::Counter> {
  using SeriesMap::SeriesMap;
};
struct Histogram::Series : SeriesMap<prometheus::Histogram> {
  Series(prometheus::Family<prometheus::Histogram>& family, std::vector<std::string> labels, std::vector<double> buckets)
      : SeriesMap(family, std::move(labels)), buckets(std::move(buckets)) {}
  const std::vector<double> buckets;
};

struct Registry::Impl {
  prometheus::Registry registry;
  mutable base::Mutex mutex;
  std::vector<FamilyInfo> families ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Gauge::Series>> gauges ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Counter::Series>> counters ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Histogram::Series>> histograms ABSL_GUARDED_BY(mutex);
  std::vector<std::function<void()>> refreshers ABSL_GUARDED_BY(mutex);
  std::vector<ReadGauge> read_gauges ABSL_GUARDED_BY(mutex);
  base::Mutex text_mutex;  // held while the text is made: a refresh may clear series: no reader is to see the moment between

  void Declare(const FamilySpec& spec, Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const FamilyInfo info = {spec.prefix + spec.name, kind, spec.labels, spec.help};
    const auto at = std::lower_bound(families.begin(), families.end(), info.name, [](const auto& f, const auto& n) { return f.name < n; });
    if (at != families.end() && at->name == info.name) Die(info.name, "declared twice");
    families.insert(at, info);
  }
};

const char* Name(Kind kind) {
  constexpr const char* kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<int>(kind)];
}

void Gauge::Set(double value, const LabelValues& labels) const {
  series_->With(labels, [&](prometheus::Gauge& gauge) { gauge.Set(value); });
}
void Gauge::Add(double change, const LabelValues& labels) const {
  series_->With(labels, [&](prometheus::Gauge& gauge) { gauge.Increment(change); });
}
void Gauge::Clear() const { series_->Clear(); }
void Gauge::Remove(const LabelValues& labels) const { series_->Remove(labels); }

void Counter::Add(double amount, const LabelValues& labels) const {
  series_->With(labels, [&](prometheus::Counter& counter) { counter.Increment(amount); });
}
void Counter::IncreaseTo(double total, const LabelValues& labels) const {
  series_->With(labels, [&](prometheus::Counter& counter) {
    if (total > counter.Value()) counter.Increment(total - counter.Value());
  });
}
void Counter::Remove(const LabelValues& labels) const { series_->Remove(labels); }

void Histogram::Observe(double value, const LabelValues& labels) const {
  series_->With(
      labels, [&](prometheus::Histogram& histogram) { histogram.Observe(value); }, series_->buckets);
}

void Histogram::InitializeToZero(const LabelValues& labels) const {
  series_->With(
      labels, [](prometheus::Histogram&) {}, series_->buckets);
}

std::vector<double> ExponentialBuckets(double first, double factor, int count) {
  std::vector<double> buckets;
  for (double bound = first; static_cast<int>(buckets.size()) < count; bound *= factor) buckets.push_back(bound);
  return buckets;
}

Registry::Registry(const std::string& program, const std::string& version) : impl_(std::make_unique<Impl>()) {
  AddGauge({"build_info", "Always 1; the labels say which program of which version this is.", {"program", "version"}})
      .Set(1, {program, version});
}

Registry::~Registry() = default;

Gauge Registry::AddGauge(const FamilySpec& spec) {
  const base::MutexLock lock(impl_->mutex);
  impl_->Declare(spec, Kind::kGauge);
  auto& family = prometheus::BuildGauge().Name(spec.prefix + spec.name).Help(spec.help).Register(impl_->registry);
  return Gauge(impl_->gauges.emplace_back(std::make_unique<Gauge::Series>(family, spec.labels)).get());
}

Counter Registry::AddCounter(const FamilySpec& spec) {
  const base::MutexLock lock(impl_->mutex);
  impl_->Declare(spec, Kind::kCounter);
  auto& family = prometheus::BuildCounter().Name(spec.prefix + spec.name).Help(spec.help).Register(impl_->registry);
  return Counter(impl_->counters.emplace_back(std::make_unique<Counter::Series>(family, spec.labels)).get());
}

Histogram Registry::AddHistogram(const FamilySpec& spec, std::vector<double> buckets) {
  const base::MutexLock lock(impl_->mutex);
  impl_->Declare(spec, Kind::kHistogram);
  auto& family = prometheus::BuildHistogram().Name(spec.prefix + spec.name).Help(spec.help).Register(impl_->registry);
  return Histogram(impl_->histograms.emplace_back(std::make_unique<Histogram::Series>(family, spec.labels, std::move(buckets))).get());
}

void Registry::OnCollect(std::function<void()> refresh) {
  const base::MutexLock lock(impl_->mutex);
  impl_->refreshers.push_back(std::move(refresh));
}

void Registry::AddCallbackGauge(const FamilySpec& spec, std::function<void(const Emit& emit)> read) {
  const base::MutexLock lock(impl_->mutex);
  impl_->Declare(spec, Kind::kGauge);
  ReadGauge gauge{
      {spec.prefix + spec.name, Kind::kGauge, spec.labels, spec.help}, std::vector<size_t>(spec.labels.size()), std::move(read)};
  std::iota(gauge.order.begin(), gauge.order.end(), 0);
  std::sort(gauge.order.begin(), gauge.order.end(), [&](size_t a, size_t b) { return spec.labels[a] < spec.labels[b]; });
  impl_->read_gauges.push_back(std::move(gauge));
}

std::string Registry::Text() {
  const base::MutexLock one_at_a_time(impl_->text_mutex);
  std::vector<std::function<void()>> refreshers;
  std::vector<ReadGauge> read_gauges;
  {
    const base::MutexLock lock(impl_->mutex);
    refreshers = impl_->refreshers;
    read_gauges = impl_->read_gauges;
  }
  for (const auto& refresh : refreshers) refresh();
  std::string text = prometheus::TextSerializer().Serialize(impl_->registry.Collect());
  for (const ReadGauge& gauge : read_gauges) AppendText(gauge, text);
  return text;
}

std::vector<FamilyInfo> Registry::Families() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->families;
}

}  // namespace fusionllm::metrics
