// What clients of one engine see while others come: the real scheduler on the CUDA engine, random
// weights, 512 source tokens, greedy.
//
//   cuda_serving_benchmark [slots] [share ...]
//
// First 32 sequences run while 0, 1, 4 or 16 newcomers are encoded at a time; then as many clients
// as slots, each sending its next request when its last one has ended; then Poisson arrivals at
// `share` (default 0.7) of the rate which that gave. Times are between a token and the next of one
// sequence, and from a request's arrival to its first token.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/core/clock.h"
#include "backend/core/notifier.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/scheduler.h"
#include "backend/scheduler/scheduler_observer.h"
#include "backend/testing/memory_checkpoint.h"
#include "benchmarks/engine/model_shape.h"

namespace seq2seq {
namespace {

constexpr int32_t kSourceTokens = 512;
constexpr int32_t kNewTokens = 128;
constexpr int32_t kRunning = 32;
constexpr int kRounds = 8;

double NowMs() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// When one request's tokens came.
struct Timeline {
  double arrival_ms = 0.0;
  std::vector<double> token_ms;
  bool ended = false;
};

// Counts ends, so that a client can wait for them.
class Ends {
 public:
  void Add() {
    {
      std::lock_guard lock(mutex_);
      ++count_;
    }
    changed_.notify_all();
  }
  void WaitFor(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

class TimedSink final : public TokenSink {
 public:
  TimedSink(Timeline* timeline, Ends* ends, const std::atomic<bool>* cancel)
      : timeline_(timeline), ends_(ends), cancel_(cancel) {}
  void Append(int32_t /*token*/, float /*logprob*/) override {
    timeline_->token_ms.push_back(NowMs());
  }
  void Finish(FinishReason /*reason*/) override { End(); }
  void Fail(Error error) override {
    if (!IsCancelled()) std::printf("FAILED: %s\n", error.message.c_str());
    End();
  }
  bool IsCancelled() override { return cancel_ != nullptr && cancel_->load(); }

 private:
  void End() {
    timeline_->ended = true;
    ends_->Add();
  }

  Timeline* timeline_;
  Ends* ends_;
  const std::atomic<bool>* cancel_;
};

class SilentObserver final : public SchedulerObserver {
 public:
  void OnGauges(const SchedulerGauges& /*gauges*/) override {}
  void OnGeneratedTokens(int64_t /*count*/) override {}
  void OnSourceTokens(int64_t /*count*/) override {}
  void OnEngineFailure(const Error& error) override {
    std::printf("FAILED: %s\n", error.message.c_str());
  }
};

// The value that `share` of the others don't exceed.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * values.size()))];
}

std::string Summary(const std::vector<double>& values) {
  char text[96];
  std::snprintf(text, sizeof(text), "p50 %7.2f p90 %7.2f p99 %7.2f max %7.2f ms",
                Quantile(values, 0.5), Quantile(values, 0.9), Quantile(values, 0.99),
                Quantile(values, 1.0));
  return text;
}

// Times between tokens whose later one came in [from, to).
void AddGaps(const Timeline& timeline, double from, double to, std::vector<double>* gaps) {
  const std::vector<double>& at = timeline.token_ms;
  for (size_t i = 1; i < at.size(); ++i) {
    if (at[i] >= from && at[i] < to) gaps->push_back(at[i] - at[i - 1]);
  }
}

// A model that serves: engine, queue and scheduler.
class Server {
 public:
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<const DeviceWeights> weights,
                                               int32_t slots, int32_t decoder_tokens) {
    auto server = std::make_unique<Server>();
    CudaEngineOptions options;
    options.max_active_sequences = slots;
    options.max_source_tokens = kSourceTokens;
    options.max_decoder_tokens = decoder_tokens;
    const double begin = NowMs();
    SEQ2SEQ_ASSIGN_OR_RETURN(server->engine_,
                             CudaEngine::Create(std::move(weights), options, &server->notifier_));
    std::printf("engine made in %.0f ms\n", NowMs() - begin);
    server->scheduler_ = std::make_unique<Scheduler>(
        SchedulerContext{server->engine_.get(), &server->notifier_, &server->queue_,
                         &server->clock_, &server->observer_});
    return server;
  }

  // Queues a request whose sink writes to `timeline`; all pointers outlive it.
  void Send(int32_t new_tokens, Timeline* timeline, Ends* ends,
            const std::atomic<bool>* cancel = nullptr) {
    auto pending = std::make_unique<PendingRequest>();
    Request& request = pending->request;
    for (int32_t i = 0; i < kSourceTokens; ++i) {
      request.source_ids.push_back(static_cast<int32_t>(random_() % 32000) + 3);
    }
    request.decoder_prefix = {0};
    request.min_new_tokens = new_tokens;
    request.max_new_tokens = new_tokens;
    request.arrival_ns = clock_.NowNs();
    timeline->token_ms.reserve(new_tokens);
    timeline->arrival_ms = NowMs();
    pending->sink = std::make_unique<TimedSink>(timeline, ends, cancel);
    if (const Status pushed = queue_.Push(pending); !pushed) {
      std::printf("FAILED: %s\n", pushed.error().message.c_str());
      std::exit(1);
    }
  }

 private:
  std::mt19937 random_{11};
  SteadyClock clock_;
  SilentObserver observer_;
  Notifier notifier_;
  RequestQueue queue_{4096};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;
};

void SleepMs(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// Running sequences beside `newcomers` encoded together, kRounds times.
void MeasureNewcomers(Server* server, int newcomers) {
  std::vector<Timeline> running(kRunning);
  Ends running_ends;
  std::atomic<bool> cancel = false;
  for (Timeline& timeline : running) server->Send(900, &timeline, &running_ends, &cancel);
  SleepMs(250.0);
  std::vector<double> first_ms;
  std::vector<std::pair<double, double>> windows;
  std::vector<Timeline> guests(static_cast<size_t>(newcomers) * kRounds);
  Ends guest_ends;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = NowMs();
    for (int i = 0; i < newcomers; ++i) {
      server->Send(2, &guests[round * newcomers + i], &guest_ends);
    }
    if (newcomers == 0) SleepMs(20.0);
    guest_ends.WaitFor((round + 1) * newcomers);
    double end = NowMs();
    if (newcomers > 0) end = 0.0;
    for (int i = 0; i < newcomers; ++i) {
      const Timeline& guest = guests[round * newcomers + i];
      first_ms.push_back(guest.token_ms.front() - guest.arrival_ms);
      end = std::max(end, guest.token_ms.front());
    }
    windows.emplace_back(begin, end);
    SleepMs(30.0);
  }
  cancel = true;
  running_ends.WaitFor(kRunning);
  std::vector<double> gaps;
  for (const auto& [from, to] : windows) {
    for (const Timeline& timeline : running) AddGaps(timeline, from, to, &gaps);
  }
  std::printf("%d running, %2d newcomers: first token %s | between tokens %s (%.1f a round)\n",
              kRunning, newcomers, Summary(first_ms).c_str(), Summary(gaps).c_str(),
              static_cast<double>(gaps.size()) / kRunning / kRounds);
  std::fflush(stdout);
}

void Report(const char* name, const std::vector<Timeline>& timelines, double from, double to) {
  std::vector<double> first_ms;
  std::vector<double> gaps;
  int tokens = 0;
  for (const Timeline& timeline : timelines) {
    for (const double at : timeline.token_ms) tokens += at >= from && at < to ? 1 : 0;
    if (timeline.token_ms.empty() || timeline.arrival_ms < from || timeline.arrival_ms >= to) {
      continue;
    }
    first_ms.push_back(timeline.token_ms.front() - timeline.arrival_ms);
    AddGaps(timeline, from, to, &gaps);
  }
  const double median = Quantile(gaps, 0.5);
  std::printf("%s: %.1f requests/s, %.0f tokens/s, first token %s | between tokens %s (%.2f x)\n",
              name, 1000.0 * tokens / kNewTokens / (to - from), 1000.0 * tokens / (to - from),
              Summary(first_ms).c_str(), Summary(gaps).c_str(), Quantile(gaps, 0.99) / median);
  std::fflush(stdout);
}

// As many clients as slots, each with one request at a time. Returns requests/s.
double MeasureClosed(Server* server, int clients) {
  constexpr int kEach = 5;
  std::vector<Timeline> timelines(static_cast<size_t>(clients) * kEach);
  std::vector<std::thread> threads;
  std::mutex send;
  const double begin = NowMs();
  for (int client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      Ends ends;
      SleepMs(client * 8.0);  // not in step with each other
      for (int i = 0; i < kEach; ++i) {
        {
          std::lock_guard lock(send);
          server->Send(kNewTokens, &timelines[client * kEach + i], &ends);
        }
        ends.WaitFor(i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double middle = (NowMs() - begin) / 2;
  const double from = begin + 0.4 * middle;
  const double to = begin + 1.5 * middle;
  Report("closed loop", timelines, from, to);
  int tokens = 0;
  for (const Timeline& timeline : timelines) {
    for (const double at : timeline.token_ms) tokens += at >= from && at < to ? 1 : 0;
  }
  return 1000.0 * tokens / kNewTokens / (to - from);
}

void MeasurePoisson(Server* server, double rate) {
  constexpr double kWindowMs = 4000.0;
  constexpr double kWarmUpMs = 800.0;
  std::mt19937 random(5);
  std::exponential_distribution<double> wait(rate / 1000.0);
  std::vector<double> arrivals;
  for (double at = wait(random); at < kWindowMs + kWarmUpMs; at += wait(random)) {
    arrivals.push_back(at);
  }
  std::vector<Timeline> timelines(arrivals.size());
  Ends ends;
  const double begin = NowMs();
  for (size_t i = 0; i < arrivals.size(); ++i) {
    SleepMs(std::max(0.0, begin + arrivals[i] - NowMs()));
    server->Send(kNewTokens, &timelines[i], &ends);
  }
  ends.WaitFor(static_cast<int>(arrivals.size()));
  char name[64];
  std::snprintf(name, sizeof(name), "Poisson at %.1f/s", rate);
  Report(name, timelines, begin + kWarmUpMs, begin + kWarmUpMs + kWindowMs);
}

Status Benchmark(int32_t slots, const std::vector<double>& shares) {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(0));
  std::shared_ptr<const DeviceWeights> weights;
  {
    const MemoryCheckpoint checkpoint(*ModelShape("t5_1_5b", DType::kBFloat16));
    SEQ2SEQ_ASSIGN_OR_RETURN(weights, DeviceWeights::Load(checkpoint, DType::kBFloat16));
  }
  {
    SEQ2SEQ_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                             Server::Start(weights, kRunning + 16, 901));
    Timeline first;
    Ends ends;
    server->Send(2, &first, &ends);
    ends.WaitFor(1);
    std::printf("very first request: first token after %.2f ms\n",
                first.token_ms.front() - first.arrival_ms);
    for (const int newcomers : {0, 1, 4, 16}) MeasureNewcomers(server.get(), newcomers);
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                           Server::Start(weights, slots, kNewTokens + 1));
  const double rate = MeasureClosed(server.get(), slots);
  for (const double share : shares) MeasurePoisson(server.get(), share * rate);
  return OkStatus();
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  const int32_t slots = argc > 1 ? std::atoi(argv[1]) : 64;
  std::vector<double> shares;
  for (int i = 2; i < argc; ++i) shares.push_back(std::atof(argv[i]));
  if (shares.empty()) shares = {0.7};
  const seq2seq::Status status = seq2seq::Benchmark(slots, shares);
  if (status) return 0;
  std::printf("FAILED: %s\n", status.error().message.c_str());
  return 1;
}
