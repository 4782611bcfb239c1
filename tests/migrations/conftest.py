"""What tests of migrations need besides the store that all share."""

from tests.store_cluster import cluster as cluster
from tests.store_cluster import started_cluster as started_cluster
