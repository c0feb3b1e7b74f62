"""The summary term in the Trainer of Hugging Face: one argument, `compute_loss_func`.

    pip install 'selbo[transformers,sklearn]'
    python examples/huggingface_trainer.py --out demo

Scikit-learn's tumours as sentences of thirty words ("the radius is in the third tenth", ...), read by a small BERT that
starts from random weights, so that nothing is downloaded. Assume that 93 % of them can be classified, and that
63 % are benign. The same lines fine-tune a model from the hub.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import selbo
from selbo.integrations.transformers import SummaryCallback, SummaryLoss


class Tumours(Dataset):
    """What a tokeniser would give: `input_ids` and `labels`. Each of 30 measurements has ten words of its own."""

    def __init__(self, indices: torch.Tensor) -> None:
        values, labels = (torch.tensor(array) for array in load_breast_cancer(return_X_y=True))
        tenth = values.argsort(0).argsort(0) * 10 // len(values)
        self.words = (1 + 10 * torch.arange(30) + tenth)[indices]  # word 0 is padding
        self.labels = labels[indices]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for what the Trainer writes")
    parser.add_argument("--smoke", action="store_true", help="four steps, to see that everything works")
    arguments = parser.parse_args()
    set_seed(0)
    order = torch.randperm(569)
    train, test = Tumours(order[:300]), Tumours(order[300:])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=301, max_position_embeddings=30, num_labels=2, **sizes)

    belief = selbo.expect(accuracy=0.93, class_fractions=[0.37, 0.63])  # malignant, benign
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=100.0)
    trainer = Trainer(
        BertForSequenceClassification(config),
        TrainingArguments(
            output_dir=str(arguments.out),
            max_steps=4 if arguments.smoke else 150,
            per_device_train_batch_size=100,
            learning_rate=1e-3,
            logging_steps=2 if arguments.smoke else 30,
            report_to="none",  # "tensorboard", "mlflow", ...: they get log_summary and summary_distance too
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=train,
        eval_dataset=test,
        compute_loss_func=SummaryLoss(summary, num_data=len(train)),  # the one line
    )
    trainer.add_callback(SummaryCallback(trainer))
    trainer.train()
    print(f"cross-entropy on the test set: {trainer.evaluate()['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
