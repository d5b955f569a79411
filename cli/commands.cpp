#include "cli/command.hpp"
#include "cli/goal.hpp"

namespace zeroplan::cli {

std::span<const Command> commands() {
  static const std::vector<Command> list{
      {"fit",
       "MODEL --hw MACHINE",
       "does it fit, and how fast? memory by category, traffic, time per step, days and cost",
       "MODEL is a preset (zeroplan models list), a Hugging Face config.json or a folder with one, a model "
       "file, params=7.5B (model states and traffic only), or a shape: "
       "layers=48,hidden=1600,heads=25,vocab=50257.\n"
       "Exit code 0 when it fits, 1 when it does not; then the cheapest changes that make it fit are shown.",
       {{"fit gpt2-xl --hw v100-32gb --gpus 64 --zero 2 --micro-batch 4", "one plan on 64 GPUs"},
        {"fit ./config.json --hw dgx-h100 --nodes 4 --zero 3 -o json",
         "a model file, four nodes, for a program"},
        {"fit llama2-13b --hw dgx-a100 --nodes 4 --zero 3 --recompute full --tokens 300B --price 2",
         "days and cost of a training"},
        {"fit params=7.5B --hw v100-32gb --gpus 64 --zero 1", "model states of a parameter count"}},
       true,
       fit,
       fit_options()},
      {"compare",
       "MODEL --hw MACHINE",
       "DP, MP, ZeRO-1/2/3, P_a and offload side by side: memory, traffic, time",
       "One row per strategy, made from the plan that the options describe; a row that is not possible says "
       "why.",
       {{"compare gpt2-xl --hw dgx2", "every strategy on one DGX-2"},
        {"compare params=7.5B --hw v100-32gb --gpus 64 -o csv", "Figure 1 of the ZeRO paper, as CSV"}},
       true,
       compare,
       goal_options()},
      {"report",
       "MODEL --hw MACHINE",
       "a page to send: memory, traffic, time in pictures, and what would change them",
       "One HTML file that needs nothing else: the verdict, memory by category for each stage of ZeRO and "
       "over "
       "the step, traffic, where the time goes, what other batches and more GPUs would give, and what it all "
       "rests on. -o md and -o json hold the same.\n"
       "Exit code as of fit.",
       {{"report llama2-13b --hw dgx-a100 --nodes 4 --zero 3 --out plan.html", "one plan, to send"},
        {"report gpt2-xl --hw v100-32gb --gpus 64 --zero 2 -o md", "for a pull request"}},
       true,
       report,
       goal_options(),
       reports::Format::html},
      {"explain",
       "KEY MODEL --hw MACHINE | --program MODEL --hw MACHINE",
       "one number: its formula with the values put in, and its source",
       "KEY is a number of `zeroplan fit -o json`, such as peak_bytes or by_category_bytes.parameter.\n"
       "Without KEY the keys are listed. --program shows the step itself: what one rank does, instruction by "
       "instruction, and what each waits for.",
       {{"explain model_state_bytes gpt2-xl --hw v100-32gb --gpus 64 --zero 1", "where a number comes from"},
        {"explain traffic_psi gpt2-xl --hw v100-32gb --gpus 64 --zero 3", "the paper's measure of traffic"},
        {"explain --program gpt2 --hw dgx-a100 --zero 3", "what a rank does in a step, and in which order"},
        {"explain", "the keys"}},
       true,
       explain,
       explain_options()},
      {"validate",
       "MODEL",
       "train a few steps here and compare with the prediction",
       "Predicts, then trains some steps of the model on this machine's processors, each GPU of the plan a "
       "rank, and compares memory, traffic and FLOPs with the prediction. Ranks are threads (--gpus 4), or "
       "the processes that mpirun, srun or torchrun started. Tokens are drawn from a seed, or the bytes of "
       "--data.\n"
       "Exit code 0 when every figure is within its tolerance, 1 when one is not, 3 when the plan cannot run "
       "here, 4 when the run failed.",
       {{"validate gpt2 --gpus 2 --zero 2 --seq 64 --dtype fp32", "ZeRO-2 on two ranks of this machine"},
        {"validate -f plan.yaml -o json --out run.json", "a record to make reports from"},
        {"validate gpt2 --zero 1 --data book.txt --steps 100 --save book.checkpoint",
         "train on a file and keep the state"}},
       true,
       validate,
       validate_options()},
      {"calibrate",
       "",
       "measure this machine and write a profile for --hw",
       "Measures how fast kernels and collectives run on this machine's processors or GPUs, with 1, 2, 4 ... "
       "ranks at work, and writes a description of the machine (docs/calibrate.md), from which fit and "
       "validate "
       "predict times. A GPU's peaks are those of its shipped description.\n"
       "Started by mpirun, srun or torchrun, the ranks are its processes. Nothing else should run meanwhile.",
       {{"calibrate --out here.yaml", "this machine, for --hw here.yaml"},
        {"calibrate --device cuda:0 --out gpu.yaml", "one GPU, for --hw gpu.yaml"},
        {"calibrate --quick --ranks 1 --types fp32 -o table", "a look at the rates of one rank"}},
       false,
       calibrate,
       calibrate_options(),
       reports::Format::yaml},
      {"models",
       "list | show MODEL | count MODEL",
       "the library of models; what a model file holds",
       "list   every preset with its parameter count\n"
       "show   every shape and parameter tensor, with the published count beside ours\n"
       "count  the parameters, one number",
       {{"models list", "every preset"},
        {"models show gpt2-xl", "one of them, tensor by tensor"},
        {"models count ./config.json", "parameters of a file"}},
       false,
       models},
      {"hw",
       "list | show MACHINE | detect",
       "the library of machines; this machine",
       "list    every device, node and cluster\n"
       "show    every figure of one, with its source\n"
       "detect  the GPUs of the machine this runs on, their links, the network, the host; what to give to "
       "--hw\n"
       "Exit code of detect: 0, or 3 where there is no GPU or no driver; the host is shown then too.",
       {{"hw list", "every machine"},
        {"hw show v100-32gb", "one of them, with the source of every figure"},
        {"hw detect", "this machine"},
        {"hw detect --describe here.yaml", "a file for --hw of what was read"}},
       false,
       hw,
       hw_options()},
      {"doctor",
       "",
       "what is here for a live run, what is missing, and the command that mends it",
       "Looks at zeroplan's modules, BLAS, MPI, the driver, the GPUs and CUDA's libraries, and at the "
       "system's ports, limits, pages and clocks.\n"
       "Exit code 0 when nothing is missing that a live run on the device needs, else 3.",
       {{"doctor", "this machine, on its GPUs where it has some"},
        {"doctor --device cuda -o json", "what a run on GPUs needs, for a program"}},
       false,
       doctor,
       doctor_options()},
      {"accuracy",
       "FILE...",
       "predictions against CSV files of measured runs",
       "Predicts every run of the files, as far as it can be described, and compares memory, step time "
       "and whether it fitted with what was measured: by source, GPU and ZeRO stage, with the worst runs, "
       "and why runs are left out. A FILE has the columns of measured_runs.csv "
       "(docs/accuracy.md).",
       {{"accuracy tests/reference/runs/measured_runs.csv",
         "published runs, of which this repository has a "
         "copy"},
        {"accuracy mine.csv --quality ABC -o csv", "runs of your own, one row per group"}},
       false,
       accuracy,
       accuracy_options()},
      {"completion",
       "bash | zsh | fish",
       "a script that completes commands, options and values in your shell",
       "Packages install it. Without one: . <(zeroplan completion bash)",
       {{"completion bash", "for bash"}},
       false,
       completion},
      {"manual",
       "",
       "the manual page, for man",
       "Packages install it. Without one: zeroplan manual >zeroplan.1; man ./zeroplan.1",
       {{"manual --out zeroplan.1", "as a file"}},
       false,
       manual},
  };
  return list;
}

}  // namespace zeroplan::cli
