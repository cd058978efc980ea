"""An analysis, from journals to answers: in this process, on workers, or as a job."""
