// What decoding with drafts brings beside decoding without, found by trials: now and then a few
// steps in a row are of another kind than the rest, and their time is compared with that of the
// steps around them, so that a machine that slows down or speeds up misleads nobody. By cap:
//
//   gain = tokens of a draw with drafts / (seconds of a step with drafts / seconds of one without)
//
// At a cap above 0 a trial does without drafts, at 0 it asks for as many as promise most. Others,
// with a schedule of their own, ask for the most there are, to verify them all: promises rest on
// what was tried, and rows cost less where they are many. When a trial begins follows from steps
// before it, never from a token that it decides about.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dhs {

class DraftTrials {
 public:
  explicit DraftTrials(int highest) : highest_(highest), loads_{Load(highest)} {}

  struct Trial {
    int cap = 0;                // so many drafts are asked for
    bool verifies_all = false;  // whatever the ratio test says
  };
  // Of the step planned next, if it belongs to a trial. cap: of the steps that do not.
  std::optional<Trial> begin_step(int cap, int promising);
  // One that prompts are computed in: of no trial, and compared with none.
  void begin_other_step(int cap);

  // One that asked for as many drafts as the step before it, and that no prompt was computed in.
  struct Step {
    int cap = 0;          // so many
    double requests = 0;  // that decode
    double tokens = 0;
    double seconds = 0;
  };
  void observe(const Step& step);

  // The same number of requests, output under the cap by output without drafts. Unknown until
  // kFewestTrials were made with about as many requests as decode now, and once that is long ago;
  // kMostLoads numbers of requests are remembered.
  std::optional<double> gain(int cap) const;
  // Of it, only the time: seconds of a step with drafts by those of one without.
  std::optional<double> slowdown(int cap) const;
  // Whether that of the present cap, or of any at 0, may be known soon.
  bool is_to_come() const;

  static constexpr int64_t kFewestTrials = 2;
  // Steps from trial to trial: the first ones; where those led to nothing; then what their cost
  // allows, between two bounds.
  static constexpr int64_t kFirstPeriod = 8;
  static constexpr int64_t kUnknownPeriod = 128;
  static constexpr int64_t kShortestPeriod = 32;
  static constexpr int64_t kLongestPeriod = 2048;
  static constexpr double kMostCost = 0.005;  // of the output, each kind
  // Steps of a trial. With drafts and few requests more, as so many draws are wanted.
  static constexpr int64_t kFewestSteps = 4;
  static constexpr int64_t kFewestDraws = 12;
  static constexpr size_t kMostLoads = 8;

 private:
  struct Arm {                   // a cap
    std::vector<double> ratios;  // of seconds to those without drafts, in the newest trials
    int64_t age = 0;             // steps since the latest trial ended
    double tokens = 0;           // of its draws, fading
    double draws = 0;
  };
  struct Load {  // what holds while about so many requests decode
    explicit Load(int highest) : arms(highest + 1) {}
    bool is_of(double number) const;

    double requests = 0;
    std::vector<Arm> arms;  // by cap
    int64_t steps_to_trial = kFirstPeriod;
    int64_t steps_to_highest = 2 * kFirstPeriod;
  };

  Load& load() { return loads_.back(); }
  const Load& load() const { return loads_.back(); }
  const Arm& arm(int cap) const { return load().arms[cap]; }
  void take_load(double requests);
  void take_cap(int cap);
  void begin_trial(const Trial& trial, int64_t& steps_to_next);
  void end_trial();
  void add_ratio(int cap, double ratio);
  void count_draws(const Step& step);
  bool is_known(int cap) const;
  int64_t period_after(int64_t num_steps) const;
  double ratio(int cap) const;  // of seconds to those without drafts

  const int highest_;
  std::vector<Load> loads_;  // the present one last, then the one before it
  int cap_ = 0;
  Trial trial_;                            // the latest
  int64_t steps_left_ = 0;                 // of the trial that is running
  int64_t num_steps_ = 0;                  // planned since the cap or the load changed
  std::vector<double> usual_s_, trial_s_;  // seconds of the newest steps, of the trial's
};

}  // namespace dhs
