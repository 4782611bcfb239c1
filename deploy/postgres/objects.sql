-- Files, batches and stored responses, beside the control database.
CREATE DATABASE objects OWNER tollkeeper;
