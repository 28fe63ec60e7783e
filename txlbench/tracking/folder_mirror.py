"""One folder's MLflow run: made once, given the folder's files as they change, and a status."""

from collections.abc import Mapping
from pathlib import Path

from txlbench.tracking.backlog import Delivered
from txlbench.tracking.mlflow_store import MlflowStore
from txlbench.tracking.store import Store


class FolderMirror:
    """What an experiment, a run and a finding have in common; notes lie in each folder."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.mlflow = MlflowStore(store)

    def ensure_run(
        self, folder: Path, home: str, name: str, tags: Mapping[str, str], started: float = 0.0
    ) -> Delivered:
        """The notes of `folder`, whose MLflow run exists from now on."""
        notes = Delivered.read(folder, self.store)
        if notes.run_id is not None and not self.mlflow.exists(notes.run_id):
            notes = Delivered(self.store.uri)
        if notes.run_id is None:
            notes.write(folder)
            notes.run_id = self.mlflow.find(home, notes.token) or self.mlflow.create(
                home, name, notes.token, tags, started
            )
            notes.write(folder)
        return notes

    def forget(self, folder: Path) -> None:
        """Deletes the folder's run from the store, so that all of it is delivered anew."""
        notes = Delivered.read(folder, self.store)
        if notes.run_id is not None:
            self.mlflow.delete(notes.run_id)
        Delivered(self.store.uri).write(folder)

    def deliver_files(self, folder: Path, notes: Delivered, patterns: tuple[str, ...]) -> None:
        """Uploads what is new or changed."""
        for path, digest in notes.changed(folder, patterns):
            below = path.relative_to(folder)
            inside = str(below.parent) if below.parent != Path() else None
            self.mlflow.log_file(notes.run, path, inside)
            notes.files[str(below)] = digest
            notes.write(folder)

    def set_status(self, folder: Path, notes: Delivered, status: str, ended: float) -> None:
        """Sets MLflow's word for the state, if it is another one."""
        if notes.status == status:
            return
        self.mlflow.set_status(notes.run, status, ended)
        notes.status = status
        notes.write(folder)
